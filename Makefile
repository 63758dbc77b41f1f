# The main commands are `make demo`, `make nodes`, `make test` and `make bench`. Each does its own set-up.
# Tools are built once and cached in a user cache directory, keyed by content.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CACHE := $(or $(OUTRIGGER_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/outrigger)
export OUTRIGGER_CACHE := $(CACHE)

# cargo's target folder is in the cache, so that a new clone reuses every dependency that Cargo.lock still names.
TARGET_KEY := $(shell cat Cargo.lock rust-toolchain.toml Cargo.toml | sha256sum | cut -c1-16)
export CARGO_TARGET_DIR ?= $(CACHE)/target-$(TARGET_KEY)

# The pinned toolchain may be installed under another name.
TOOLCHAIN := $(shell e2e/tools/toolchain)
ifneq ($(TOOLCHAIN),)
export RUSTUP_TOOLCHAIN := $(TOOLCHAIN)
endif

RUN := $(CURDIR)/target
DEMO_TOOLS := k8s-1.26 etcd kustomize moto
TEST_TOOLS := $(DEMO_TOOLS) k8s-1.36 kubectl helm crane aws-ccm json-patch kstatus
KUBELET_TOOLS := kubelets containerd
NODES_TOOLS := k8s-1.26 etcd moto kubectl helm $(KUBELET_TOOLS)
LONG_TESTS := crash leader_changes iam golden_api json_patches kubelets cert_manager
BENCH_TOOLS := k8s-1.36 etcd webhook-go moto aws-ccm

NEXTEST = $$(e2e/tools/cargo-program cargo-nextest 0.9.151 --no-default-features --features default-no-update) nextest
JUNIT := $(RUN)/nextest/default/junit.xml
LEFT_OUT := $(RUN)/left-out

MINUTES ?= 4
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/cargo-fuzz/fuzz_targets/*.rs)))
TARGETS ?= $(FUZZ_TARGETS)
BENCH ?= webhook manager services
BENCH_OPTIONS ?=

.PHONY: alerts prune help demo demo-incumbent nodes prove test test-long bench house words fuzz fuzz-quick properties mutants lint fmt check-languages binaries binaries-bench tools-demo tools-test tools-bench tools-kubelets tools-nodes clean parity-record parity-draw iam

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

demo: check-languages tools-demo binaries ## perform a real migration on this machine; KEEP=1 leaves it running
	@OUTRIGGER_TOOLS=$(RUN)/tools.env $(CARGO_TARGET_DIR)/debug/outrigger-demo migrate $(if $(KEEP),--keep)

demo-incumbent: check-languages tools-test binaries ## perform it twice with aws-cloud-controller-manager v1.37 instead of our manager
	@OUTRIGGER_TOOLS=$(RUN)/tools.env $(CARGO_TARGET_DIR)/debug/outrigger-demo incumbent

nodes: check-languages tools-nodes binaries ## start a cluster with a real kubelet on this machine, for `helm install` as docs/try.md shows it; NODES=3 starts three control planes
	@OUTRIGGER_TOOLS=$(RUN)/tools-nodes.env $(CARGO_TARGET_DIR)/debug/outrigger-nodes --folder=target/nodes --machines=$(or $(NODES),1)

prove: check-languages tools-test binaries ## run the scenarios of leadership on real components and check their bounds; SCENARIO=1,4 selects some, SERVICES=300 NODES=1000 is the full size of 19, RUNS=3, SEED=1, JOBS=2 at the same time; UPDATE=1 writes docs/proof.md and continues a campaign
	@OUTRIGGER_TOOLS=$(RUN)/tools.env $(CARGO_TARGET_DIR)/debug/outrigger-prove '--scenario=$(SCENARIO)' '--runs=$(RUNS)' '--seed=$(SEED)' '--jobs=$(JOBS)' '--mutation=$(MUTATION)' '--services=$(SERVICES)' '--nodes=$(NODES)' $(if $(UPDATE),--write=docs/proof.md --source=$$(e2e/tools/sources) --commit=$$(git rev-parse --short=10 HEAD))

test: check-languages tools-test binaries ## run the tests: unit, property, golden, real API servers, the migration; a part of the long ones (test-long)
	@rm -f $(JUNIT) $(LEFT_OUT)
	@status=0; GOMAXPROCS=1 OUTRIGGER_TOOLS=$(RUN)/tools.env OUTRIGGER_LEFT_OUT=$(LEFT_OUT) $(NEXTEST) run --locked --workspace || status=$$?; \
		if [[ -e $(JUNIT) ]]; then e2e/tools/slowest $(JUNIT) || true; fi; e2e/tools/left-out $(LEFT_OUT); exit $$status

# `make test` runs a fixed part of each, and nothing with cert-manager.
test-long: TEST_TOOLS += $(if $(filter cert_manager,$(or $(TESTS),$(LONG_TESTS))),cert-manager)
test-long: check-languages tools-test binaries ## run the long campaigns in full: kills at every write, 200 leader changes, all IAM roles, all golden cases, 100,000 JSON patches, the guide of kubeadm on real kubelets, cert-manager; TESTS=crash selects one; two hours
	@OUTRIGGER_TOOLS=$(RUN)/tools.env OUTRIGGER_CRASH=all OUTRIGGER_LEADER_CHANGES=200 OUTRIGGER_IAM=all OUTRIGGER_GOLDEN=all OUTRIGGER_JSON_PATCHES=100000 \
		$(NEXTEST) run --locked --workspace --profile long $(addprefix --test ,$(or $(TESTS),$(LONG_TESTS)))

FUZZ_SECONDS = $$((60 * $(MINUTES) / $(words $(TARGETS))))
fuzz: check-fuzz check-languages ## run libFuzzer on all parsers for MINUTES=4 in total; TARGETS='admission pem' selects some (fuzz/README.md)
	@fuzz/cargo-fuzz/run $(FUZZ_SECONDS) '$(SEED)' $(TARGETS)

fuzz-quick: check-fuzz check-languages ## the same with random changes of the seeds instead of libFuzzer: nothing is instrumented
	@FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_SEED=$(SEED) cargo test --locked --workspace --test fuzz_targets -- --test-threads=1 --nocapture --exact $(TARGETS)

check-fuzz:
	@[[ '$(MINUTES)' =~ ^[1-9][0-9]*$$ ]] || { echo "MINUTES='$(MINUTES)' is not a whole number of at least 1" >&2; exit 2; }
	@[[ -n '$(strip $(TARGETS))' && -z '$(filter-out $(FUZZ_TARGETS),$(TARGETS))' ]] || \
		{ echo "TARGETS='$(TARGETS)' has to name some of: $(FUZZ_TARGETS)" >&2; exit 2; }

# Slightly optimized, because the same code runs very often. Its outputs are in the same target folder as the others.
QUICK := --config 'profile.dev.package.outrigger-manager.opt-level=1' --config 'profile.dev.package.outrigger-aws.opt-level=1'
properties: check-languages ## check each property of Service plans in PLANS=10000 random states of AWS, others at each run; SEED=1 repeats one; ten minutes
	@seed=$(or $(SEED),$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')); echo "SEED=$$seed PLANS=$(or $(PLANS),10000)"; \
		PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=$(or $(PLANS),10000) cargo test --locked --workspace --lib --no-fail-fast $(QUICK) -- controllers::service::tests::properties

mutants: check-languages ## change the code of gate, permit and timeline in one place after another, and name each change that no test finds; FILES='manager/evidence/src/latch.rs' selects other files
	@set -f; e2e/tools/mutants $(FILES)

bench: check-languages tools-bench binaries-bench ## compare webhook, manager and service controller with other programs (BENCH=webhook selects one); UPDATE=1 writes docs/benchmarks.md
	@for what in $(BENCH); do OUTRIGGER_TOOLS=$(RUN)/tools-bench.env $(CARGO_TARGET_DIR)/release/outrigger-bench $$what $(BENCH_OPTIONS) $(if $(UPDATE),--write=docs/benchmarks.md); done
	@if [[ ' $(BENCH) ' == *' webhook '* ]]; then \
		cargo bench --locked -p outrigger-decide --bench worst_objects; \
		cargo bench --locked -p outrigger-webhook --bench attacks; \
		cargo bench --locked -p outrigger-fuzz --bench work; fi

.PHONY: bench-libc
bench-libc: check-languages tools-bench prune ## compare our programs for musl with those for glibc: memory, requests per second, cold start
	@cargo build --locked --release -p outrigger-bench --bins
	@gnu=$$(LIBC=gnu image/programs release $(ARCH)) && musl=$$(LIBC=musl image/programs release $(ARCH)) && \
		OUTRIGGER_TOOLS=$(RUN)/tools-bench.env $(CARGO_TARGET_DIR)/release/outrigger-bench builds $(BENCH_OPTIONS) glibc=$${gnu##*=} musl=$${musl##*=}

parity-record: check-languages tools-test binaries ## record the results of v1.37 for the cases of e2e/parity, or of CASES=FOLDER
	@OUTRIGGER_TOOLS=$(RUN)/tools.env $(CARGO_TARGET_DIR)/debug/outrigger-parity record $(or $(CASES),e2e/parity/nodes e2e/parity/services)

COUNT ?= 40
DRAWN = $(RUN)/drawn-$(or $(SEED),1)
parity-draw: check-languages tools-test binaries ## run v1.37 and our manager on COUNT=40 Services drawn from SEED=1, and compare
	@rm -rf $(DRAWN)
	@$(CARGO_TARGET_DIR)/debug/outrigger-parity draw --seed=$(or $(SEED),1) --count=$(COUNT) $(DRAWN)
	@OUTRIGGER_TOOLS=$(RUN)/tools.env $(CARGO_TARGET_DIR)/debug/outrigger-parity record $(DRAWN)
	@OUTRIGGER_TOOLS=$(RUN)/tools.env $(CARGO_TARGET_DIR)/debug/outrigger-parity compare-drawn $(DRAWN)

iam: check-languages tools-test binaries ## run all recorded cases under the IAM roles of e2e/iam, or under ROLES=kOps,CAPA; half an hour
	@OUTRIGGER_TOOLS=$(RUN)/tools.env OUTRIGGER_IAM=all $(if $(ROLES),OUTRIGGER_IAM_ROLES=$(ROLES)) cargo test --locked -p outrigger-e2e --test iam --no-fail-fast -- --nocapture

.PHONY: image
PROFILE ?= release
ARCH ?= $(if $(filter aarch64,$(shell uname -m)),arm64,amd64)
IMAGE ?= localhost/outrigger
image: prune ## write the container image without an engine, into target/image; ARCH="amd64 arm64", PROFILE=dev takes the programs of the tests, IMAGE=registry.example.com/outrigger, BUILDER=URI also writes the provenance
	@programs=$$(LIBC=$(LIBC) image/programs $(PROFILE) $(ARCH)) && \
		image/build $$programs --output=$(RUN)/image --name=$(IMAGE) $(if $(BUILDER),'--builder=$(BUILDER)') --revision=$$(git describe --always --abbrev=40 --dirty --match= 2>/dev/null || echo unknown)

.PHONY: image-check
image-check: ## check digests and programs of target/image, and start the programs, with qemu those of another architecture; LIBC=gnu permits libraries
	@image/check $(if $(filter musl,$(LIBC)),--static) $(RUN)/image

alerts: ## check the alerts and run their cases with promtool: an installed one, a Debian package, or a build
	@e2e/tools/alerts

.PHONY: site
site: check-languages ## build the documentation as a site into target/site, with mdBook, which is built once, and check its links
	@e2e/tools/site

house: check-languages ## print the sizes of files and functions, and the import cycles
	@cargo run --locked --quiet -p outrigger-structure

words: check-languages ## print the comments and pages that break a rule of language; none may
	@cargo run --locked --quiet -p outrigger-structure -- words

lint: check-languages words ## formatting, rules of language, clippy with warnings denied, cargo-deny
	@cargo fmt --all --check
	@cargo clippy --locked --workspace --all-targets -- -D warnings
	@e2e/tools/deny

.PHONY: macos
macos: check-languages ## check that the rules of the command `outrigger` compile for macOS
	@e2e/tools/macos

fmt: ## format the code
	@cargo fmt --all

check-languages:
	@e2e/tools/languages

binaries: prune
	@e2e/tools/cold-build $(CARGO_TARGET_DIR)
	@cargo build --locked --workspace

binaries-bench: prune
	@cargo build --locked --release -p outrigger-bench -p outrigger-manager -p outrigger-webhook --bins

tools-demo:
	@mkdir -p $(RUN) && e2e/tools/build --paths $(DEMO_TOOLS) > $(RUN)/tools.env.new && mv $(RUN)/tools.env.new $(RUN)/tools.env

# Tests with real kubelets and with buildah are left out where the machine cannot run them; the last lines of `make test` have the
# reasons.
tools-test:
	@mkdir -p $(RUN) && e2e/tools/build --paths $(TEST_TOOLS) $$(if e2e/tools/kubelets-possible >/dev/null; then echo $(KUBELET_TOOLS); fi) $$(if e2e/tools/buildah-possible >/dev/null; then echo buildah; fi) > $(RUN)/tools.env.new && mv $(RUN)/tools.env.new $(RUN)/tools.env

tools-kubelets: ## build a kubelet, and unpack containerd from Debian packages, for tests on real kubelets
	@e2e/tools/kubelets-possible || exit 1
	@e2e/tools/build k8s-1.26 etcd $(KUBELET_TOOLS)

tools-nodes:
	@e2e/tools/kubelets-possible || exit 1
	@mkdir -p $(RUN) && e2e/tools/build --paths $(NODES_TOOLS) > $(RUN)/tools-nodes.env.new && mv $(RUN)/tools-nodes.env.new $(RUN)/tools-nodes.env

tools-bench:
	@mkdir -p $(RUN) && e2e/tools/build --paths $(BENCH_TOOLS) > $(RUN)/tools-bench.env.new && mv $(RUN)/tools-bench.env.new $(RUN)/tools-bench.env

prune: ## delete cached target folders unused for two weeks, and build outputs of clones after two days
	@mkdir -p $(CACHE) $(CARGO_TARGET_DIR) && touch $(CARGO_TARGET_DIR)
	@find $(CACHE) -maxdepth 1 -name 'target-*' -mtime +14 -exec rm -rf {} +
	@find $(CACHE) -mindepth 4 -maxdepth 4 \( -path '*/target-*/*/deps/*outrigger*' -o -path '*/target-*/*/incremental/*' \) -mtime +1 -prune -exec rm -rf {} +

clean: ## delete this clone's run folder; the cache stays
	@rm -rf $(RUN)
