"""The forward pass of a BERT sentence encoder, from its files: torch and a tokenizer, no more.

sentence-transformers gives the same bits (a test holds the two together) but its
import costs seconds that every run would wait for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional

_KNOWN = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


@dataclass(frozen=True, slots=True)
class _Affine:
    weight: torch.Tensor
    bias: torch.Tensor


@dataclass(frozen=True, slots=True)
class _Layer:
    """`attend` holds query, key and value one below the other."""

    attend: _Affine
    attended: _Affine
    attended_norm: _Affine
    widen: _Affine
    narrow: _Affine
    norm: _Affine


class SentenceEncoder:
    """Mean-pooled, L2-normalised sentence vectors of a model in `folder`.

    Texts are cut at `max_tokens`. Raises `ValueError` for a model of another
    make. Threads may share one; each text is a forward pass of its own.
    """

    def __init__(self, folder: Path, max_tokens: int) -> None:
        config = json.loads((folder / "config.json").read_bytes())
        other = {k: config.get(k) for k, v in _KNOWN.items() if config.get(k) != v}
        if other:
            raise ValueError(f"{folder} holds no BERT encoder that is known here: {other}")
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        weights = load_file(str(folder / "model.safetensors"))
        self._heads = int(config["num_attention_heads"])
        self._width = int(config["hidden_size"])
        self._eps = float(config["layer_norm_eps"])
        self._words = weights["embeddings.word_embeddings.weight"]
        self._places = weights["embeddings.position_embeddings.weight"]
        self._kind = weights["embeddings.token_type_embeddings.weight"][0]
        self._norm = _affine(weights, "embeddings.LayerNorm")
        self._layers = [
            _layer(weights, f"encoder.layer.{i}") for i in range(config["num_hidden_layers"])
        ]

    def encode(self, text: str) -> npt.NDArray[np.float32]:
        """The unit vector of one text, shape (hidden_size,)."""
        ids = torch.tensor(self._tokenizer.encode(text).ids)
        with torch.inference_mode():
            hidden = self._normed(
                self._words[ids] + self._kind + self._places[: len(ids)], self._norm
            )
            for layer in self._layers:
                hidden = self._through(layer, hidden)
            unit = functional.normalize(hidden.mean(dim=0, keepdim=True), dim=1)
        row: npt.NDArray[np.float32] = unit[0].numpy().astype(np.float32)
        return row

    def _through(self, layer: _Layer, hidden: torch.Tensor) -> torch.Tensor:
        shape = (len(hidden), 3, self._heads, self._width // self._heads)
        query, key, value = (
            _linear(hidden, layer.attend).view(shape).permute(1, 2, 0, 3).unsqueeze(1)
        )
        seen = functional.scaled_dot_product_attention(query, key, value)
        mixed = seen[0].transpose(0, 1).reshape(len(hidden), self._width)
        hidden = self._normed(hidden + _linear(mixed, layer.attended), layer.attended_norm)
        wide = functional.gelu(_linear(hidden, layer.widen))
        return self._normed(hidden + _linear(wide, layer.narrow), layer.norm)

    def _normed(self, hidden: torch.Tensor, by: _Affine) -> torch.Tensor:
        return functional.layer_norm(hidden, (self._width,), by.weight, by.bias, self._eps)


def _linear(hidden: torch.Tensor, by: _Affine) -> torch.Tensor:
    return functional.linear(hidden, by.weight, by.bias)


def _affine(weights: dict[str, torch.Tensor], name: str) -> _Affine:
    return _Affine(weights[f"{name}.weight"], weights[f"{name}.bias"])


def _layer(weights: dict[str, torch.Tensor], name: str) -> _Layer:
    parts = [_affine(weights, f"{name}.attention.self.{n}") for n in ("query", "key", "value")]
    return _Layer(
        _Affine(torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])),
        _affine(weights, f"{name}.attention.output.dense"),
        _affine(weights, f"{name}.attention.output.LayerNorm"),
        _affine(weights, f"{name}.intermediate.dense"),
        _affine(weights, f"{name}.output.dense"),
        _affine(weights, f"{name}.output.LayerNorm"),
    )
