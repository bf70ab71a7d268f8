# `make demo` and `make test` each work as the first command on a fresh machine.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
RUN    ?= demo

.PHONY: demo test test-heavy lint format bench judge serve card clean

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[dev]'
	# cognee puts a stand-in of its own over the package kuzu, which graphiti needs as it is.
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --no-deps --force-reinstall kuzu
	@touch $@

demo: $(READY) ## the recovery suite on the bundled users, embedded profile; prints the report's path
	$(BIN)/memprobe run recovery --run $(RUN)

test: $(READY) ## everything but the heavy suites
	$(BIN)/python -m pytest -m "not heavy" --numprocesses 2 --dist loadfile

test-heavy: $(READY) ## browser, real Prefect server, kill suite: minutes each
	$(BIN)/python -m pytest -m heavy --numprocesses 2 --dist loadfile

lint: $(READY) ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## ratios on this machine, written to benchmarks/results
	$(BIN)/python -m benchmarks.run_all

judge: $(READY) ## fit the embedded judge again; RELEASE is the folder of the public release
	$(BIN)/python -m benchmarks.calibrate_judge $(RELEASE) --write

serve: $(READY) ## a Prefect server that stays, with pools and automation
	$(BIN)/memprobe up

card: $(READY) ## rebuild the data card after a change of the bundled users
	$(BIN)/python -m tasks.card

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
