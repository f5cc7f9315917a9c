# SPDX-License-Identifier: MIT OR Apache-2.0
# Thin targets; each does its work in scripts/. `make kmod KDIR=…` builds for that kernel.

.PHONY: all kmod setup test demo clean

all: kmod
	cargo build --release --workspace

kmod:
	KDIR=$(KDIR) scripts/build-kmod

setup:
	scripts/setup

test:
	scripts/test

demo:
	scripts/demo

clean:
	rm -rf target
