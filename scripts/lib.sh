# shellcheck shell=bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Helpers that every script here sources: messages, root, the cache and its recipes.

set -euo pipefail

REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CACHE=${ROCM_XIO_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rocm-xio}

# The kernel series that the module is written for, and the packages of the sysroot.
KERNEL_SERIES=7.3
SYSROOT_SUITE=trixie
SYSROOT_PACKAGES="rustc rust-src rustfmt bindgen clang lld llvm gcc-14 make flex bison bc libelf-dev
  libssl-dev kmod cpio xz-utils busybox-static python3 pahole rsync"

die() {
    echo "error: $*" >&2
    exit 1
}

note() { echo "[${0##*/}] $*"; }

# The proxy, which sudo takes out of the environment.
PROXY=(${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"})

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -- env "${PROXY[@]}" "$@"
    else
        die "root is needed for '$1': run this as root, or install sudo"
    fi
}

# recipe_hash WORDS…: twelve hex digits that change when a recipe does.
recipe_hash() { printf '%s\n' "$@" | sha256sum | cut -c1-12; }

# The trailing number is raised when the recipe in scripts/setup changes.
SYSROOT_HASH=$(recipe_hash "$SYSROOT_SUITE" "$SYSROOT_PACKAGES" "$KERNEL_SERIES" 1)
SYSROOT=$CACHE/sysroot-$SYSROOT_HASH
KERNEL_HASH=$(recipe_hash "$SYSROOT_HASH" 1)
DEBUG_HASH=$(recipe_hash "$SYSROOT_HASH" "$(cat "$REPO/scripts/debug-kernel.config")" 1)

# The test machines' kernel: stock, Debian's own, or debug, the same source with the kernel's checkers.
KERNEL=${ROCM_XIO_KERNEL:-stock}
case $KERNEL in
    stock) KMOD_OUT=$REPO/target/kmod ;;
    debug) KMOD_OUT=$REPO/target/kmod-debug ;;
    *) die "ROCM_XIO_KERNEL must be stock or debug, not $KERNEL" ;;
esac

# load_kernel: sets KVER, KSRC (a path inside the sysroot), VMLINUZ, MODULES and KMAKE (make's arguments).
load_kernel() {
    local stamp=$SYSROOT/etc/rocm-xio-kernel
    [ -r "$stamp" ] || die "the sysroot is not there: run ./scripts/setup first"
    KVER=$(cat "$stamp")
    if [ "$KERNEL" = debug ]; then
        KSRC=/usr/src/rocm-xio-debug-$DEBUG_HASH
        KVER=${KVER%%[+-]*}-xio-debug
        MODULES=$SYSROOT$KSRC/installed/lib/modules/$KVER
        VMLINUZ=$SYSROOT$KSRC/arch/x86/boot/bzImage
        # shellcheck disable=SC2034 # for the scripts that source this file
        KMAKE=(LLVM=1 LOCALVERSION=-xio-debug)
        return
    fi
    KSRC=/usr/src/rocm-xio-kernel-$KERNEL_HASH
    MODULES=$SYSROOT/usr/lib/modules/$KVER
    VMLINUZ=$MODULES/vmlinuz
    # shellcheck disable=SC2034 # for the scripts that source this file
    KMAKE=(CC=x86_64-linux-gnu-gcc-14 "LOCALVERSION=${KVER#"${KVER%%[+-]*}"}")
}

# print_env: what other programs need to know, as shell assignments.
print_env() {
    load_kernel
    printf '%s=%q\n' SYSROOT "$SYSROOT" KSRC "$KSRC" KVER "$KVER" VMLINUZ "$VMLINUZ" \
        MODULES "$MODULES" QEMU "$REPO/scripts/qemu" XIO_CACHE "$CACHE" KMOD_OUT "$KMOD_OUT"
}

RUST_MINIMUM=1.85

# need_rust: stops unless a recent Rust is there.
need_rust() {
    local version how="install Rust $RUST_MINIMUM or newer with rustup (see the Rust project's site), or on Debian 13:
       apt-get install cargo rustfmt rust-clippy"
    command -v cargo >/dev/null || die "cargo is missing: $how"
    version=$(rustc --version | awk '{ print $2 }')
    [ "$(printf '%s\n' "$RUST_MINIMUM" "$version" | sort -V | head -n 1)" = "$RUST_MINIMUM" ] ||
        die "rustc is $version: $how"
}

cargo_target() { echo "${CARGO_TARGET_DIR:-$REPO/target}"; }

# On CI the lock file must be right as committed; a developer's cargo may bring it up to date.
# shellcheck disable=SC2034 # for the scripts that source this file
LOCKED=(${CI:+--locked})
