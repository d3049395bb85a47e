# Basalt: `make help` says what there is.

PREFIX  ?= /usr/local
DESTDIR ?=
CARGO   ?= cargo
TARGET  := $(or $(CARGO_TARGET_DIR),target)
BINDIR   = $(DESTDIR)$(PREFIX)/bin
MANDIR   = $(DESTDIR)$(PREFIX)/share/man
# mount(8) looks for its helpers in /sbin and /usr/sbin only.
SBINDIR  = $(DESTDIR)/sbin
BASH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS  = $(DESTDIR)$(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS = $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
# How long all fuzz targets run together, in seconds.
FUZZ_SECONDS ?= 300
# Power cuts that `make crash-campaign` makes, and the seed it begins with.
CUTS ?= 1000000
SEED ?= 0
# A shard of cargo-mutants' list, and how many bugs of kinds that it does not know, for `make mutant-campaign`.
SHARD ?= 22/70
KINDS ?= 70
# Volumes of each kind that `make damage-campaign` damages and repairs; they begin with SEED too.
COUNT ?= 1000
# How often `make kill-campaign` kills the process that serves a mount, and as often as the second number for each database.
KILLS ?= 200
DATABASE_KILLS ?= 20
# Seconds that one test program may run, and how often it may try again after running longer.
TEST_LIMIT ?= 900
TEST_RETRIES ?= 0

.DEFAULT_GOAL := help
.PHONY: help dependencies build run test bench lint fuzz crash-campaign mutant-campaign damage-campaign kill-campaign install clean

help: ## say what there is
	@echo "Basalt: flash file systems in userspace. Targets:"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

dependencies: ## install what building and testing needs
	@scripts/install-dependencies

build: ## build the release program, target/release/basalt
	$(CARGO) build --release --locked --package basalt

run: ## format, mount, fill, change, unmount and check a volume, with times
	@scripts/install-dependencies run
	@$(MAKE) --no-print-directory build
	scripts/run-demo

test: dependencies ## run every test
	$(CARGO) test --workspace --locked \
		--config "target.'cfg(all())'.runner = ['$(CURDIR)/scripts/within-limit', '$(TEST_LIMIT)', '$(TEST_RETRIES)']"

.PHONY: endurance
endurance: ## overwrite a volume of 512 MiB a hundred times, and time small writes under constant cleaning
	$(CARGO) test --release --locked --package basalt-f2fs --test endurance -- --ignored --nocapture --test-threads 1

bench: build dependencies ## measure beside ext4, xfs, btrfs and Linux's F2FS
	scripts/bench

.PHONY: modules
modules: ## draw the engine's modules from what they call
	$(CARGO) run --quiet --locked --package basalt-testkit --example modules

lint: ## formatting, clippy, documentation and tidiness, all without a warning; no new call of a higher module
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	$(CARGO) run --quiet --locked --package basalt-testkit --example modules -- --check
	$(CARGO) test --quiet --locked --package basalt-testkit --test tidy

fuzz: ## fuzz every on-disk structure and whole volumes, FUZZ_SECONDS in all
	@scripts/install-dependencies fuzz
	@scripts/fuzz $(FUZZ_SECONDS)

crash-campaign: ## make CUTS simulated power cuts and hold what is left against what was promised
	RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/rustc-with-reach \
		$(CARGO) run --release --locked --package basalt-crash -- campaign --cuts $(CUTS) --first $(SEED)

mutant-campaign: ## plant bugs that nobody here chose, and count the power cuts until each is found
	scripts/mutant-campaign $(SHARD) $(KINDS)

damage-campaign: dependencies ## damage and repair COUNT volumes in five places, and as many in one structure, also with fsck.f2fs
	BASALT_DAMAGED_VOLUMES=$(COUNT) BASALT_DAMAGE_SEED=$(SEED) $(CARGO) test --locked --package basalt-f2fs --test damage -- \
		--ignored --nocapture

kill-campaign: dependencies ## kill mounts KILLS times under programs that use fsync, and databases DATABASE_KILLS times each
	BASALT_KILLS=$(KILLS) BASALT_DATABASE_KILLS=$(DATABASE_KILLS) $(CARGO) test --locked --package basalt --test mount -- \
		--nocapture --test-threads=1 kills:: databases::

install: build ## install the program, helpers of mount(8) and fsck(8), man pages and completions below PREFIX (DESTDIR for packages)
	install -D -m 755 $(TARGET)/release/basalt $(BINDIR)/basalt
	install -d $(SBINDIR) $(MANDIR)/man1 $(BASH_COMPLETIONS) $(ZSH_COMPLETIONS) $(FISH_COMPLETIONS)
	sed 's|^BASALT=.*|BASALT=$(PREFIX)/bin/basalt|' scripts/mount.fuse.basalt > $(SBINDIR)/mount.fuse.basalt
	sed 's|^BASALT=.*|BASALT=$(PREFIX)/bin/basalt|' scripts/umount.fuse.basalt > $(SBINDIR)/umount.fuse.basalt
	sed 's|^BASALT=.*|BASALT=$(PREFIX)/bin/basalt|' scripts/fsck.fuse.basalt > $(SBINDIR)/fsck.fuse.basalt
	chmod 755 $(SBINDIR)/mount.fuse.basalt $(SBINDIR)/umount.fuse.basalt $(SBINDIR)/fsck.fuse.basalt
	ln -sf umount.fuse.basalt $(SBINDIR)/umount.fuseblk.basalt
	$(TARGET)/release/basalt man --out $(MANDIR)/man1
	$(TARGET)/release/basalt completions bash > $(BASH_COMPLETIONS)/basalt
	$(TARGET)/release/basalt completions zsh  > $(ZSH_COMPLETIONS)/_basalt
	$(TARGET)/release/basalt completions fish > $(FISH_COMPLETIONS)/basalt.fish

clean: ## remove everything that was built
	$(CARGO) clean
