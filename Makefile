# Needs GNU make, Go, git and a C compiler, which the race detector links with.
# Everything else is built under .tools.

SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS     += --no-print-directory

TOOLS := .tools/bin

# Flags of the benchmark program: make bench BENCHFLAGS="-h"
BENCHFLAGS ?=

# Flags of the program that tries to break Croft.
PROOFFLAGS ?=

# Flags of the program that hunts flaky tests.
FLAKESFLAGS ?=

# Flags of the program that looks for known vulnerabilities.
VULNFLAGS ?=

# The race detector watches all packages but two: modernc.org/sqlite/lib is
# SQLite's C as Go, and modernc.org/libc is the C library that it calls. Their
# data is outside the Go heap, where the detector sees nothing. Detection there
# took more than two thirds of the time of everything that uses SQLite. Data
# gets there through SQLite's driver, which is watched.
#
# With -trimpath the go command need not compile our packages again in another
# clone.
RACE := -race -trimpath -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false

# All packages of the modules in go.work. `./...` would leave out the modules
# below the top.
ALL := work

# The modules in bench and below tools are not in go.work: they must not change
# the versions that Croft is tested with.
ALONE := GOWORK=off

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: gotest ## everything: lint, generated files, benchmarks' own tests, all tests with the race detector
	@MAKE="$(MAKE)" tools/stages lint generated 'bench-tests&' tests

.PHONY: quick
quick: ## vet, and the tests that need no server and no root, within two minutes
	go vet $(ALL)
	go test $(RACE) -short $(ALL)

.PHONY: lint
lint: linter ## our list of linters (tools/lint), and types for macOS and Windows
	@tools/lint/check $(TOOLS)/lint
	go vet $(RACE) -vettool=$(CURDIR)/$(TOOLS)/lint $(ALL)
	cd bench && $(ALONE) go vet $(RACE) -vettool=$(CURDIR)/$(TOOLS)/lint ./...
	@cd tools/oscheck && $(ALONE) GOOS= GOARCH= go build -buildvcs=false -o ../../$(TOOLS)/oscheck .
	$(TOOLS)/oscheck darwin/arm64 windows/amd64

.PHONY: fmt
fmt: ## format all Go files with gofumpt
	@cd tools/lint && $(ALONE) GOOS= GOARCH= go build -buildvcs=false -o ../../$(TOOLS)/gofumpt mvdan.cc/gofumpt
	@git ls-files -z '*.go' ':!tools/lint/testdata' | xargs -0 $(TOOLS)/gofumpt -w

.PHONY: bench
bench: ## measure Croft beside its peers and its floor, and write docs/benchmarks.md with charts: make bench BENCHFLAGS=...
	cd bench && $(ALONE) go run . -write ../docs/benchmarks.md $(BENCHFLAGS)

.PHONY: proof
proof: ## try to break it in every way, for 20 minutes, and write docs/proof.md: make proof PROOFFLAGS="-h"
	go run ./proof/cmd/proof $(PROOFFLAGS)

.PHONY: mutants
mutants: ## show every broken variant found, and by which check
	@go run ./proof/cmd/mutants

.PHONY: flakes
flakes: ## hunt flaky tests under load, for 10 minutes: make flakes FLAKESFLAGS="-h"
	@go build -o $(TOOLS)/flakes ./tools/flakes
	@exec $(TOOLS)/flakes -build '$(RACE)' $(FLAKESFLAGS)

.PHONY: vuln
vuln: govulncheck ## look for known vulnerabilities in all Go modules (needs the network): make vuln VULNFLAGS="-h"
	@go build -o $(TOOLS)/vuln ./tools/vuln
	@exec $(TOOLS)/vuln -govulncheck $(TOOLS)/govulncheck $(VULNFLAGS)

# VERSION comes through the environment, so that no character in it is special.
.PHONY: dist
dist: nfpm ## build the archives and packages of a release, their checksums and SBOMs into dist: make dist VERSION=v1.2.3
	@go build -o $(TOOLS)/dist ./tools/dist
	@exec $(TOOLS)/dist -version "$${VERSION:-}" -out dist

.PHONY: generate
generate: ## write again what is generated from the code
	go generate $(ALL)

# The stages of `make test`; each also runs alone.

# Tests mostly wait, for a lease to end or a server to answer. So several tests
# of a package run at a time, even on few processors. The timeout detects
# hanging, not slowness. `make lint` has done what `go test` would vet. A test
# binary lingers for a moment when it ends, to hear of races; by default for 1 s.
.PHONY: tests
tests: gotest
	@GORACE="atexit_sleep_ms=50 $${GORACE:-}" $(TOOLS)/gotest $(RACE) -vet=off -count=1 -timeout=20m -parallel=8 -p=3 $(ALL)

.PHONY: bench-tests
bench-tests: gotest
	@cd bench && export $(ALONE) && ../$(TOOLS)/gotest $(RACE) -vet=off -count=1 -timeout=20m ./...

.PHONY: generated
generated:
	@tools/generated

# gotest runs go test, and lists the failures at the end.
.PHONY: gotest
gotest:
	@go build -o $(TOOLS)/gotest ./tools/gotest

# tools/lint pins the linters and all their dependencies, so that a warm cache
# is enough to build them. With -trimpath every clone gets the same program, and
# the go command finds what it said of the same code in another clone.
.PHONY: linter
linter:
	@cd tools/lint && $(ALONE) GOOS= GOARCH= go build -trimpath -buildvcs=false -o ../../$(TOOLS)/lint .

# tools/govulncheck pins govulncheck in the same way.
.PHONY: govulncheck
govulncheck:
	@cd tools/govulncheck && $(ALONE) GOOS= GOARCH= go build -buildvcs=false -o ../../$(TOOLS)/govulncheck \
		golang.org/x/vuln/cmd/govulncheck

# tools/nfpm writes .deb and .rpm packages.
.PHONY: nfpm
nfpm:
	@cd tools/nfpm && $(ALONE) GOOS= GOARCH= go build -buildvcs=false -o ../../$(TOOLS)/nfpm .
