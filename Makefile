# Everything one does with this repository. `make` alone lists it.

# Where rustup puts cargo, for a shell that was opened before.
export PATH := $(PATH):$(HOME)/.cargo/bin
CARGO ?= cargo
# Length of each campaign of `make soak`, in minutes.
MINUTES ?= 10
# Seconds that `make fuzz` spends on each target.
SECONDS ?= 60

.PHONY: help setup build fio lint test guest loom run bench against experiments instructions soak fuzz clean

help: ## List the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: ## Install what is missing: toolchain, fio and its examples, QEMU, a browser for the tests of report pages
	@scripts/setup.sh $(SETUP)

# These need no programs that only tests use.
run against experiments: SETUP = run

build: ## Build the program, optimised
	$(CARGO) build --release --package zonal

fio: setup ## Build the fio engine, optimised, for the fio that is installed
	scripts/fio-engine.sh

lint: ## Check format, clippy and documentation; warnings are errors
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --package zonal-fs --lib -- -D warnings
	$(CARGO) clippy --package zonal --no-default-features --lib --examples -- -D warnings
	$(CARGO) clippy --workspace --features zonal-io/loom --test loom -- -D warnings
	$(CARGO) clippy --workspace --features zonal-fs/shuttle --test shuttle -- -D warnings
	$(CARGO) clippy --package zonal-fs --features shuttle --lib --profile test -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

test: setup ## Everything that has to pass before a change lands; prints how long each step and the slowest tests took
	scripts/test.sh

guest: setup ## What takes minutes of Linux as a host of `zonal serve`, with the rest of its tests; docs/GUEST.md has results
	scripts/guest.sh build
	scripts/guest.sh info
	$(CARGO) test --package zonal-check --test guest -- --include-ignored --nocapture --test-threads=1

loom: ## Go through the schedules of the write path's threads: every one of small models, many random ones of whole flows
	$(CARGO) test --workspace --features zonal-io/loom --test loom -- --nocapture
	$(CARGO) test --workspace --features zonal-fs/shuttle --test shuttle -- --nocapture
	$(CARGO) test --package zonal-fs --features shuttle --lib model::

run: setup build ## The main job: a disk rehearsed in two write modes, fio's zoned examples and a verified load on an emulated drive, then the write modes
	scripts/main-job.sh

bench: setup build ## Measure the speed and memory of the write path; table and JSON in out/
	scripts/bench.sh

against: setup build ## Time the paths of the write path against an earlier commit, COMMIT=..., run in turn with this one
	scripts/against.sh $(COMMIT)

experiments: setup build ## Make the published experiments of experiments/ again; tables beside the published figures, in out/
	scripts/experiments.sh

instructions: setup ## Count the instructions of a write and a read; more than docs/instructions says is an error; needs valgrind
	scripts/instructions.sh

soak: setup build ## The long campaigns, MINUTES each (default 10); results in docs/SOAK.md
	scripts/soak.sh $(MINUTES)

fuzz: setup ## Fuzz job files, device names, image headers, fault plans, traces, file systems, hosts of a target, initiators and guests of a disk, kernels of a block device and of a mount, and archives, SECONDS each (default 60); needs nightly and cargo-fuzz
	scripts/fuzz.sh $(SECONDS)

clean: ## Remove what was built and what the runs left in out/
	$(CARGO) clean
	rm -rf out
