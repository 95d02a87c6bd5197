# What can be done here. `make` lists it; the lines come from the comments behind the targets.

SERVERS ?= target/servers
PREFIX ?= /usr/local
DESTDIR ?=

CARGO ?= cargo
HOST := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
WANTED := haproxy-3.0 haproxy-3.2 haproxy-3.4 consul
PAGES := man/haptic-agent.8 man/haptic-agent-api.7 man/haptic-responder.7 man/hapticctl.1
# Tests need the fakes too; one set of features builds once.
FAKES := --features testkit
SCRIPTS := .ci/run tests/get-servers fixtures/make-site

export CLIPPY_CONF_DIR := $(CURDIR)/tests/lint
export HAPTIC_SERVERS := $(abspath $(SERVERS))

.PHONY: help build test check lint man soak bench demo static install servers clean

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r t d; do printf '  make %-8s %s\n' "$$t" "$$d"; done

build: ## the release binaries, target/release/haptic-agent and hapticctl
	$(CARGO) build --release --locked

test: servers ## everything, against real HAProxy 3.0, 3.2, 3.4 and Consul
	$(CARGO) test --locked $(FAKES)

check: lint ## format, lints, documentation, manual pages, help texts
	$(CARGO) fmt --check
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --no-deps $(FAKES)
	$(CARGO) check --locked --no-default-features $(FAKES)
	$(CARGO) test --locked $(FAKES) --test it cli::pages

lint: ## clippy, shellcheck and mandoc, warnings denied
	$(CARGO) clippy --locked --all-targets $(FAKES) -- -D warnings
	$(CARGO) clippy --locked --no-default-features --features client -- -D warnings
	@command -v shellcheck >/dev/null || { echo 'shellcheck is missing: apt-get install shellcheck' >&2; exit 1; }
	shellcheck -e SC1091 $(SCRIPTS)
	@command -v mandoc >/dev/null || { echo 'mandoc is missing: apt-get install mandoc' >&2; exit 1; }
	mandoc -T lint -W warning $(PAGES)

man: ## writes the manual pages and help snapshots from the flag table
	HAPTIC_BLESS=1 $(CARGO) test --locked $(FAKES) --test it cli::pages
	$(CARGO) test --locked $(FAKES) --test it cli::pages

soak: servers ## the long tests, bounded
	HAPTIC_SOAK=1 $(CARGO) test --release --locked $(FAKES) --lib crash:: -- --nocapture
	$(CARGO) test --release --locked $(FAKES) -- --ignored --test-threads=1

bench: servers static ## measures size, memory, start, throughput and applies
	$(CARGO) bench --locked --bench bench

demo: build ## a story on the terminal with a real HAProxy
	$(CARGO) run --quiet --release --locked --example demo

static: ## a release binary without a dynamic loader, target/static/haptic-agent
	RUSTFLAGS='-C target-feature=+crt-static' $(CARGO) build --release --locked --bin haptic-agent --target $(HOST) --target-dir target/static-build
	@mkdir -p target/static
	cp target/static-build/$(HOST)/release/haptic-agent target/static/haptic-agent
	@if readelf -lW target/static/haptic-agent | grep -q 'INTERP'; then echo 'the binary asks for a dynamic loader' >&2; exit 1; fi
	@if readelf -SW target/static/haptic-agent | grep -q '\.symtab'; then echo 'the binary is not stripped' >&2; exit 1; fi
	@./target/static/haptic-agent --version
	@if [ "$$(id -u)" = 0 ]; then empty=$$(mktemp -d) && cp target/static/haptic-agent "$$empty/" && \
	  { chroot "$$empty" /haptic-agent --version >/dev/null || { echo 'the binary does not run in an empty root directory' >&2; exit 1; }; }; rm -r "$$empty"; fi
	@printf '%s bytes\n' "$$(stat -c %s target/static/haptic-agent)"

install: ## binaries, manual pages, completions and systemd units into DESTDIR PREFIX
	@test -x target/release/haptic-agent -a -x target/release/hapticctl || $(MAKE) build
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/share/man/man1' '$(DESTDIR)$(PREFIX)/share/man/man7' '$(DESTDIR)$(PREFIX)/share/man/man8' '$(DESTDIR)$(PREFIX)/lib/systemd/system'
	install -m 0755 target/release/haptic-agent '$(DESTDIR)$(PREFIX)/bin/haptic-agent'
	install -m 0755 target/release/hapticctl '$(DESTDIR)$(PREFIX)/bin/hapticctl'
	install -m 0644 $(filter %.1,$(PAGES)) '$(DESTDIR)$(PREFIX)/share/man/man1/'
	install -m 0644 $(filter %.7,$(PAGES)) '$(DESTDIR)$(PREFIX)/share/man/man7/'
	install -m 0644 $(filter %.8,$(PAGES)) '$(DESTDIR)$(PREFIX)/share/man/man8/'
	for unit in haptic-agent haptic-responder; do \
	  sed 's|@PREFIX@|$(PREFIX)|g' "man/$$unit.service.in" >"$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit.service" && \
	  chmod 0644 "$(DESTDIR)$(PREFIX)/lib/systemd/system/$$unit.service" || exit 1; done
	install -d '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' '$(DESTDIR)$(PREFIX)/share/zsh/site-functions' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	target/release/hapticctl completion bash >'$(DESTDIR)$(PREFIX)/share/bash-completion/completions/hapticctl'
	target/release/hapticctl completion zsh >'$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_hapticctl'
	target/release/hapticctl completion fish >'$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/hapticctl.fish'

servers: ## real HAProxys and Consul in SERVERS (target/servers)
	tests/get-servers $(SERVERS) $(WANTED)

clean: ## removes target, the servers with it
	$(CARGO) clean
