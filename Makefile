# All tasks of this repository. `make` alone lists them.

# rustup's directory of cargo, for shells started before its installation.
export PATH := $(PATH):$(HOME)/.cargo/bin
CARGO ?= cargo
# Length of each campaign of `make soak`, in minutes.
MINUTES ?= 10
# Duration of `make fuzz` for each target, in seconds.
SECONDS ?= 60
# Program and output directory of `make docs`.
ZONAL ?= target/release/zonal
DOCS ?= out/docs
# Prefix of `make install`.
PREFIX ?= /usr/local

.PHONY: help setup build install docs fio lint test features check check-for guest loom run bench against experiments instructions soak fuzz clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## Install what is missing: toolchain, fio and its examples, QEMU, a browser for the tests of report pages
	@scripts/setup.sh $(SETUP)

# These do not need the programs used only by tests.
run against experiments: SETUP = run

build: ## Build the program, optimised
	$(CARGO) build --release --package zonal

install: build ## Install the program and its manual pages below PREFIX, which is /usr/local
	install -D -m 755 $(ZONAL) $(DESTDIR)$(PREFIX)/bin/zonal
	$(ZONAL) man --dir $(DESTDIR)$(PREFIX)/share/man/man1

docs: build ## Write manual pages and the help of every command and topic to out/docs
	$(ZONAL) man --dir $(DOCS)/man/man1
	$(ZONAL) help --all > $(DOCS)/reference.md

fio: setup ## Build the fio engine, optimised, for the installed fio
	scripts/fio-engine.sh

lint: ## Check the format and run clippy; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

test: setup ## Run the quick lane, required for every change; prints the time of each step and of the slowest tests
	scripts/test.sh

check: test ## Run everything: `make test`, then the full lane, about three hours
	scripts/check.sh

check-for: setup ## Run the parts of the full lane that are due since .ci/checked, 40 minutes at most
	scripts/check.sh --for

features: ## Run clippy on each separately built set of features, and build the documentation; warnings are errors
	$(CARGO) clippy --package zonal-fs --lib -- -D warnings
	$(CARGO) clippy --package zonal --no-default-features --lib --examples -- -D warnings
	$(CARGO) clippy --workspace --features zonal-io/loom --test loom -- -D warnings
	$(CARGO) clippy --workspace --features zonal-fs/shuttle --test shuttle -- -D warnings
	$(CARGO) clippy --package zonal-fs --features shuttle --lib --profile test -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

guest: setup ## Run all tests that boot a Linux guest as a host of `zonal serve`, more than two hours; results in docs/GUEST.md
	scripts/check.sh 'guest-*'

loom: ## Explore the thread schedules of the write path: all schedules of small models, random ones of whole flows
	$(CARGO) test --workspace --features zonal-io/loom --test loom -- --nocapture
	$(CARGO) test --workspace --features zonal-fs/shuttle --test shuttle -- --nocapture
	$(CARGO) test --package zonal-fs --features shuttle --lib model::

run: setup build ## Run the main job: a simulated disk in two write modes, fio's zoned examples, a verified load
	scripts/main-job.sh

bench: setup build ## Measure the speed and memory of the write path; table and JSON in out/
	scripts/bench.sh

against: setup build ## Compare the speed of the write path with an earlier commit, COMMIT=..., run alternately with this one
	scripts/against.sh $(COMMIT)

experiments: setup build ## Reproduce the published experiments of experiments/; tables beside the published figures, in out/
	scripts/experiments.sh

instructions: setup ## Count the instructions per request on each path with valgrind; fails above docs/instructions plus 10%
	scripts/instructions.sh

soak: setup build ## Run the long campaigns, MINUTES each (default 10); results in docs/SOAK.md
	scripts/soak.sh $(MINUTES)

fuzz: setup ## Fuzz all parsers and protocols, SECONDS each (default 60); needs nightly and cargo-fuzz
	scripts/fuzz.sh $(SECONDS)

clean: ## Remove all build products and the results in out/
	$(CARGO) clean
	rm -rf out
