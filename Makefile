# Each target is enough on a fresh machine that has Python 3.11 or newer: it makes .venv and installs into it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8501

.PHONY: app test check demo gguf clean

app: $(VENV)/.app
	$(BIN)/python -m streamlit run app.py --server.address 127.0.0.1 --server.port $(PORT) --browser.gatherUsageStats false

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: $(VENV)/.app
	$(BIN)/python -m gprune run demo

# llama.cpp builds from source (about five minutes on two cores); the tests of the GGUF export then run
gguf: $(VENV)/.gguf
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/export

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, $(PYTHON) is older: run make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# a stamp is written only after pip has succeeded, so an interrupted install is taken up again
$(VENV)/.app: $(VENV)/bin/python requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.dev: $(VENV)/bin/python requirements.txt requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $(VENV)/.app $@

$(VENV)/.gguf: $(VENV)/.dev requirements-gguf.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-gguf.txt
	touch $@

# texts and questions that people have given the app are in the cache as well
clean:
	rm -rf $(VENV) cache/*/ .mypy_cache .ruff_cache .pytest_cache
