# make demo, make check and make test need nothing but make and Python 3.11: each sets up what it uses, once.
# A stamp in .venv is renewed when pyproject.toml, constraints.txt or the set-up script change.

VENV := .venv
BIN := $(VENV)/bin

# Compiled modules are kept, whatever the environment says: the demo and the tests start many processes.
unexport PYTHONDONTWRITEBYTECODE

# What each set-up installs. A test that needs another extra adds it to `test`.
EXTRAS_demo := collector,plot
EXTRAS_check := check
EXTRAS_test := collector,dev,federated,plot,scale,sgd
EXTRAS_all := all

.PHONY: help setup demo check test test-all slowest mutate picture notebooks browser postgres proxy npm lint format catalogue bench board peers audit-peers docs changelog clean

help:
	@echo 'make demo    20,000 simulated devices report to a collector; truth against estimate'
	@echo 'make check   test the core, without any extra'
	@echo 'make test    run the tests'
	@echo 'make test-all   run them all: long simulations, deployments and kills too'
	@echo 'make mutate  change the code at random and see whether the tests notice'
	@echo 'make lint    style, types, layers, changelog'
	@echo 'make format  apply the style'
	@echo 'make bench   speed and error beside other libraries'
	@echo 'make board   methods by task on real data, beside other libraries; goes on where it stopped'
	@echo 'make audit-peers   audit other libraries from the outside'
	@echo 'make docs    build the documentation into site/'
	@echo 'make npm     test and pack the device for web pages, clients/js'
	@echo 'make setup   install every extra into $(VENV)'

setup: $(VENV)/.stamp-all

$(VENV)/.stamp-%: pyproject.toml constraints.txt scripts/setup.sh scripts/warm.py
	@scripts/setup.sh $(VENV) constraints.txt -e '.[$(EXTRAS_$*)]'
	@$(if $(filter check test,$*),$(BIN)/python scripts/warm.py $*)
	@touch $@

demo: $(VENV)/.stamp-demo
	$(BIN)/noisette demo

# What each tier runs is in conftest.py: --tier. WORKERS=n for other numbers of processes: where tests wait for processes
# of their own, more than two keep two cores busy.
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(or $(WORKERS),2) --dist worksteal

check: $(VENV)/.stamp-check
	$(PYTEST) -q --tier=check -p no:schemathesis $(ARGS)

test: WORKERS ?= 3
test: browser postgres $(VENV)/.stamp-test
	$(PYTEST) --tier=test $(ARGS)

test-all: WORKERS ?= 4
test-all: browser postgres proxy $(VENV)/.stamp-test
	$(PYTEST) --tier=all --junitxml=$(VENV)/durations.xml $(ARGS)

mutate: $(VENV)/.stamp-test
	OMP_NUM_THREADS=1 $(BIN)/python scripts/mutate.py $(ARGS)

picture: $(VENV)/.stamp-test browser
	$(BIN)/python scripts/picture.py

# What the cells of examples/*.ipynb print; ARGS=survey for one of them.
notebooks: $(VENV)/.stamp-test
	$(BIN)/python scripts/notebooks.py $(ARGS)

# The table of the slowest tests in CONTRIBUTING.md, from the last `make test-all`.
slowest: $(VENV)/durations.xml
	$(BIN)/python scripts/slowest.py $<

browser:
	@scripts/browser.sh >/dev/null

postgres:
	@scripts/postgres.sh >/dev/null

proxy:
	@scripts/proxy.sh >/dev/null

# The device for web pages: its tests in node, and its package.
npm:
	cd clients/js && npm test && npm pack

lint: $(VENV)/.stamp-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_changelog.py

format: $(VENV)/.stamp-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

catalogue: $(VENV)/.stamp-test
	$(BIN)/python -c 'from noisette.cli.evidence.mechanisms import STORED, describe; STORED.write_text(describe(), encoding="utf-8")'

docs: $(VENV)/.stamp-test
	$(BIN)/noisette audit --all --page docs/claims.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'open site/index.html, or with its search, which needs a server: python3 -m http.server --directory site'

.venv-peers/.stamp: constraints-peers.txt scripts/setup.sh
	scripts/setup.sh .venv-peers constraints-peers.txt diffprivlib flwr lazy-loader mpmath multi-freq-ldpy numpy opendp pure-ldp randomgen statsmodels
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps --target .venv-peers/pure-ldp-1.1.2 pure-ldp==1.1.2
	@touch $@

peers: .venv-peers/.stamp

# What has no result yet, then the page: ARGS="--only numbers" for a piece.
board: $(VENV)/.stamp-test .venv-peers/.stamp
	OMP_NUM_THREADS=1 $(BIN)/noisette board --page site/board.html $(ARGS)

bench: $(VENV)/.stamp-test .venv-peers/.stamp
	$(BIN)/python benchmarks/run.py $(ARGS)

audit-peers: .venv-peers/.stamp
	OMP_NUM_THREADS=1 PYTHONPATH=src .venv-peers/bin/python examples/audit_peers.py $(ARGS)

changelog: $(VENV)/.stamp-test
	$(BIN)/towncrier build --yes --version "$(VERSION)"

clean:
	rm -rf site build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
