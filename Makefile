# Every target works on a fresh machine with Python 3.11 or newer: it creates .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PORT ?= 8501
# One thread per process, because tests run in parallel (`make test THREADS=2` for more). Bytecode is written even if
# the environment forbids it; otherwise every process compiles all tests again.
THREADS ?= 1
PYTEST := OMP_NUM_THREADS=$(THREADS) PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
EVERY_CORE := -n logical --maxprocesses 8 --dist worksteal
# llama.cpp runs tiny models in tests alone: what compiles quickly is left in
LLAMA_CMAKE := -DLLAVA_BUILD=OFF -DGGML_LLAMAFILE=OFF -DGGML_CPU_REPACK=OFF -DCMAKE_UNITY_BUILD=ON \
	-DCMAKE_C_FLAGS_RELEASE=-O1 -DCMAKE_CXX_FLAGS_RELEASE=-O0

.PHONY: app quick test test-long coverage faults check gpu-check demo screenshots gguf clean

# `make app ARGS="--public-address localhost:9000"`: see `python -m gprune app --help`
app: $(VENV)/.app
	$(BIN)/python -m gprune app --port $(PORT) $(ARGS)

# after every edit: no browser, child process or complete study
quick: $(VENV)/.dev
	$(PYTEST) $(EVERY_CORE) -m "not (slow or process or browser or long)"

# before a change is submitted: all tests except those marked long
test: $(VENV)/.dev
	$(PYTEST) $(EVERY_CORE)

# the tests marked long, which take minutes or need more packages; .ci/run runs them last
# (many of these wait for processes, a browser or an installation, so there is one worker more than cores)
test-long: $(VENV)/.gguf $(VENV)/.onnx
	$(PYTEST) -n $$($(BIN)/python -c 'import os; print(min(8, os.cpu_count() + 1))') --dist worksteal -m long

# branch coverage of gprune/ by `test` and `test-long`; CONTRIBUTING.md has the required figure
coverage: $(VENV)/.gguf $(VENV)/.onnx
	$(BIN)/python -m coverage erase
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m coverage run -m pytest $(EVERY_CORE)
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m coverage run -m pytest $(EVERY_CORE) -m long
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

# kill runs and fill their disk, then check that no result is wrong
faults: $(VENV)/.dev
	PYTHONPATH=.:tests $(BIN)/python -m faults

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/code_size.py

# on a machine with a GPU: its tests, the pipeline at 7B and the speed table, in one report for an issue
gpu-check: $(VENV)/.dev
	$(BIN)/python scripts/gpu_check.py

demo: $(VENV)/.app
	$(BIN)/python -m gprune run demo

# the pictures in docs/screenshots, from a demo run in a separate cache; needs Chromium
screenshots: $(VENV)/.dev
	$(BIN)/python scripts/screenshots.py

# build llama.cpp from source (a minute on two cores) and run the tests of the GGUF export
gguf: $(VENV)/.gguf
	$(PYTEST) -m long tests/models/export

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, $(PYTHON) is older: run make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# the stamp is written after pip succeeds, so that an interrupted installation is repeated
$(VENV)/.app: $(VENV)/bin/python requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

$(VENV)/.dev: $(VENV)/bin/python requirements.txt requirements-recovery.txt requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $(VENV)/.app $@

# llama.cpp without the library of its programs, and its converter; `make -j 2` compiles it beside other installations
$(VENV)/.llama: $(VENV)/bin/python requirements-gguf.txt
	rm -rf $(VENV)/llama.cpp
	mkdir $(VENV)/llama.cpp
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python \
		--dest $(VENV)/llama.cpp $$(grep ^llama-cpp-python requirements-gguf.txt)
	tar -xzf $(VENV)/llama.cpp/*.tar.gz -C $(VENV)/llama.cpp --strip-components=3 --wildcards \
		'*/vendor/llama.cpp/convert_hf_to_gguf.py' '*/vendor/llama.cpp/conversion/*' '*/vendor/llama.cpp/gguf-py/*'
	echo "set(LLAMA_BUILD_COMMON OFF)" > $(VENV)/llama.cpp/parts.cmake
	CMAKE_ARGS="$(LLAMA_CMAKE) '-DCMAKE_PROJECT_llama.cpp_INCLUDE=$(abspath $(VENV))/llama.cpp/parts.cmake'" \
		$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--wheel-dir $(VENV)/llama.cpp $(VENV)/llama.cpp/*.tar.gz
	rm $(VENV)/llama.cpp/*.tar.gz
	touch $@

$(VENV)/.gguf: $(VENV)/.dev $(VENV)/.llama
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-gguf.txt $(VENV)/llama.cpp/*.whl
	touch $@

$(VENV)/.onnx: $(VENV)/.gguf requirements-onnx.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-onnx.txt
	touch $@

# this also deletes the texts and questions that users gave the app, which are in the cache
clean:
	rm -rf $(VENV) cache/*/ .mypy_cache .ruff_cache .pytest_cache
