#!/usr/bin/env bash
# Serve Mem-T-4B for MemProbe, in the environment of requirements.txt.
#
#   MEMT_MODEL    folder or hub id of the model   (EdwinYue/Mem-T-4B)
#   MEMT_NAME     name it is asked by             (Mem-T-4B)
#   MEMT_HOST     address to listen on            (127.0.0.1)
#   MEMT_PORT     port                            (8765)
#   MEMT_CONTEXT  tokens of context               (65536)
#   VLLM_API_KEY  key that callers must send; needed beyond loopback
#
# Further arguments go to vllm. No tool parser and no reasoning parser: the policy's calls
# are tagged text in its answers, and a parser would strip the tags.
set -euo pipefail

host="${MEMT_HOST:-127.0.0.1}"
for argument in "$@"; do
  case "$argument" in
    --tool-call-parser* | --reasoning-parser* | --enable-auto-tool-choice*)
      echo "serve.sh: $argument would strip the tags that MemProbe reads; leave it out" >&2
      exit 2
      ;;
  esac
done
case "$host" in
  127.* | localhost | ::1) ;;
  *)
    if [ -z "${VLLM_API_KEY:-}" ]; then
      echo "serve.sh: $host is reachable from elsewhere; set VLLM_API_KEY" >&2
      exit 2
    fi
    ;;
esac

export VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
exec vllm serve "${MEMT_MODEL:-EdwinYue/Mem-T-4B}" \
  --served-model-name "${MEMT_NAME:-Mem-T-4B}" \
  --host "$host" \
  --port "${MEMT_PORT:-8765}" \
  --max-model-len "${MEMT_CONTEXT:-65536}" \
  "$@"
