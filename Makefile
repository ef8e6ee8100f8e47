# What newcomers and contributors run; `make` alone explains the targets.
#
# It needs only git, make, python3 and pip, also where `pip install` refuses (an externally managed
# Python) and `python3 -m venv` fails (no ensurepip): uv goes to .uv/, environments to .venv*/.

PYTHON ?= python3
ARGS ?=
RESOLUTION ?= highest

BIN := .venv/bin
# A uv that is already here is used, unless it is too old to know dependency groups.
UV := $(or $(shell uv pip install --help 2>/dev/null | grep -q -e --group && command -v uv),.uv/bin/uv)

export UV_PYTHON_DOWNLOADS := never
export UV_HTTP_TIMEOUT ?= 180

.PHONY: help demo test lint format minimal environment smoke docs bench clean

help:
	@echo 'make demo     install semrecall into .venv and run its demo'
	@echo 'make test     install all extras and the tools of development, run every check and test'
	@echo 'make lint     the checks without the tests: ruff, import floors, types'
	@echo 'make format   let ruff sort imports and lay out the code'
	@echo 'make minimal  run the tests without any extra, in an environment of their own'
	@echo 'make environment NAME=...  run the tests that need packages which go with no others'
	@echo '                (tests/environments/NAME.txt)'
	@echo 'make smoke    build the package, install it as users do, and run its commands'
	@echo 'make docs     build the documentation site: build/docs/index.html'
	@echo 'make bench    a quick benchmark of exact truth (about a minute)'
	@echo 'make clean    remove environments, caches and builds'
	@echo
	@echo 'ARGS="..." is handed to semrecall demo or pytest: make test ARGS="-k recall"'
	@echo 'PYTHON=... names another Python, 3.11 or newer (after make clean): make test PYTHON=python3.13'

demo: .venv/.demo
	$(BIN)/semrecall demo $(ARGS)

# Where the shared research data lies beside the repository, nothing may be skipped.
test: lint
	SEMRECALL_FULL=$(if $(wildcard ../shared),1) $(BIN)/python -m pytest $(ARGS)

lint: .venv/.full
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

format: .venv/.full
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

minimal: .venv-minimal/.core
	.venv-minimal/bin/python -m pytest $(ARGS)

environment: .venv-$(NAME)/.ready
	SEMRECALL_ENVIRONMENT=$(NAME) .venv-$(NAME)/bin/python -m pytest $(ARGS)

smoke: | $(UV)
	rm -rf .venv-smoke
	@$(MAKE) --no-print-directory .venv-smoke/bin/python
	@$(settings); $(UV) build --quiet --out-dir .venv-smoke/dist
	@$(settings); $(UV) pip install --quiet --python .venv-smoke/bin/python \
		"$$(ls .venv-smoke/dist/*.whl)[faiss,report]"
	cd .venv-smoke && bin/semrecall --version
	cd .venv-smoke && bin/semrecall list
	cd .venv-smoke && bin/semrecall demo

docs: .venv-docs/.ready
	.venv-docs/bin/sphinx-build -W --keep-going -q -b html docs build/docs
	@cp build/docs/README.html build/docs/index.html
	@echo 'build/docs/index.html'

bench: .venv/.full
	$(BIN)/python benchmarks/bench_truth.py --queries 100,1000 --rounds 3

clean:
	rm -rf .venv .venv-* .uv uv.lock build dist semrecall-demo.html
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# -- environments; each is made once, and again when pyproject.toml changes -----------------------

.venv/.demo: pyproject.toml | .venv/bin/python
	@$(settings); $(UV) pip install --python $(BIN)/python --editable ".[faiss,report]"
	@touch $@

.venv/.full: pyproject.toml | .venv/bin/python
	@$(settings); $(UV) pip install --python $(BIN)/python --editable ".[all]" --group dev
	@touch .venv/.demo $@

.venv-minimal/.core: pyproject.toml | .venv-minimal/bin/python
	@$(settings); $(UV) pip install --python .venv-minimal/bin/python \
		--resolution $(RESOLUTION) --editable . --group test
	@touch $@

.venv-docs/.ready: pyproject.toml | .venv-docs/bin/python
	@$(settings); $(UV) pip install --quiet --python .venv-docs/bin/python --editable . --group docs
	@touch $@

# By pip: it knows of builds that lie on the machine itself.
.venv-$(NAME)/.ready: pyproject.toml tests/environments/$(NAME).txt | $(UV)
	@$(new_enough)
	@$(settings); $(UV) venv --quiet --clear --seed --python "$$($(executable))" .venv-$(NAME)
	.venv-$(NAME)/bin/python -m pip install --quiet --editable . pytest hypothesis \
		--requirement tests/environments/$(NAME).txt
	@touch $@

.venv/bin/python .venv-minimal/bin/python .venv-smoke/bin/python .venv-docs/bin/python: | $(UV)
	@$(new_enough)
	@$(UV) venv --quiet --clear --python "$$($(executable))" $(@:/bin/python=)

.uv/bin/uv:
	@$(new_enough)
	@echo 'uv is not installed: putting it into .uv/'
	@rm -rf .uv
	@if $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		PIP_ROOT_USER_ACTION=ignore $(PYTHON) -m pip install --quiet --disable-pip-version-check \
			--target .uv uv || { $(call fail,pip could not install uv; what it says stands above, \
			is a package index within reach? Or install uv another way and run make again); }; \
	elif $(PYTHON) -m venv .uv >/dev/null 2>&1; then \
		.uv/bin/python -m pip install --quiet --disable-pip-version-check uv; \
	else \
		rm -rf .uv; \
		$(call fail,$(PYTHON) has neither pip nor venv, \
			install pip (Debian and Ubuntu: apt install python3-pip) or uv); \
	fi

fail = printf 'error: %s\n\nhint: %s\n' "$(strip $(1))" "$(strip $(2))" >&2; exit 1

executable = $(PYTHON) -c 'import sys; print(sys.executable)'

new_enough = command -v $(PYTHON) >/dev/null \
	|| { $(call fail,$(PYTHON) is not installed; semrecall needs Python 3.11 or newer, \
	apt install python3 python3-pip$(comma) or name one: make PYTHON=/path/to/python); }; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	|| { $(call fail,$(PYTHON) is $$($(PYTHON) -V 2>&1); semrecall needs Python 3.11 or newer, \
	name another one: make PYTHON=/path/to/python); }

comma := ,

# uv reads neither pip's settings nor the machine's certificates: both are handed on to it.
settings = asked() { $(PYTHON) -m pip config get "global.$$1" 2>/dev/null; }; \
	index="$${UV_DEFAULT_INDEX:-$${PIP_INDEX_URL:-$$(asked index-url)}}"; \
	if [ -n "$$index" ]; then export UV_DEFAULT_INDEX="$$index"; fi; \
	for bundle in "$$SSL_CERT_FILE" "$$PIP_CERT" "$$(asked cert)" \
		/etc/ssl/certs/ca-certificates.crt; do \
		if [ -f "$$bundle" ]; then export SSL_CERT_FILE="$$bundle"; break; fi; \
	done
