# `make` lists what there is. Everything built or fetched goes to a cache outside the clone.

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/streamstage
export CARGO_TARGET_DIR ?= $(CACHE)/target

CARGO ?= cargo
# A redis-server is found or fetched once, and then comes first on PATH: tests and local runs take it from there.
WITH_REDIS = redis=$$(tests/tools/redis.sh) && PATH="$$(dirname "$$redis"):$$PATH"

.DEFAULT_GOAL := help
SHELL := bash

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the program (debug)
	$(CARGO) build --locked

.PHONY: fmt
fmt: ## Format the source
	$(CARGO) fmt

.PHONY: fmt-check
fmt-check: ## Fail where the source is not formatted
	$(CARGO) fmt --check

.PHONY: lint
lint: ## Fail on any warning of the compiler, clippy or rustdoc
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --lib

# Advisories need a database from a git host: they are looked at where there is a network, not in this gate.
.PHONY: deny
deny: ## Check licences, sources and banned crates
	@if deny=$$(tests/tools/cargo-deny.sh); then \
		"$$deny" --locked check bans licenses sources; \
	else \
		echo "NOT CHECKED: licences, sources and banned crates, for want of cargo-deny (see above)" >&2; \
	fi

.PHONY: test
test: ## Run all tests, with redis-server and worker processes of their own
	$(CARGO) test --locked --doc
	$(WITH_REDIS) $(CARGO) test --locked --lib --bins --test it

.PHONY: crds
crds: build ## Write crds/ from the API types
	mkdir -p crds
	"$(CARGO_TARGET_DIR)/$(TARGET)/debug/streamstage" crd > "$(CARGO_TARGET_DIR)/crd.yaml"
	mv "$(CARGO_TARGET_DIR)/crd.yaml" crds/streamstages.yaml

.PHONY: demo
demo: build ## See a stage at work: retries, poison, a killed worker, a replay
	$(WITH_REDIS) STREAMSTAGE="$(CARGO_TARGET_DIR)/$(TARGET)/debug/streamstage" deploy/demo/demo.sh

.PHONY: ci
ci: fmt-check lint deny test ## All that must pass before a change is merged

.PHONY: clean
clean: ## Delete what was built
	$(CARGO) clean

# The platform that .cargo/config.toml builds for.
TARGET = $(shell sed -n 's/^target = "\(.*\)"/\1/p' .cargo/config.toml)
