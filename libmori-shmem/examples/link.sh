#!/usr/bin/env bash
# Compiles a kernel, C++ or LLVM IR, and links it with the device bitcode to what a driver loads: a
# code object for gfx..., a cubin for sm_... Any LLVM that is not older than the bitcode's will do
# (LLVM=22 names its tools' suffix); NVIDIA needs ptxas too.
#
# usage: link.sh ARCH KERNEL.cpp|KERNEL.ll BITCODE.bc OUTPUT [INCLUDE_FOLDER]
set -euo pipefail
arch=$1 kernel=$2 bitcode=$3 output=$4 include=${5:-/usr/include}
suffix=${LLVM+-$LLVM}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $arch in
  gfx*) target=(--target=amdgcn-amd-amdhsa "-mcpu=$arch" -nogpulib)
    front=(-x hip -nogpulib -nogpuinc --no-gpu-bundle-output -mcode-object-version=5
      -fuse-cuid=none) ;;
  sm_*) target=(--target=nvptx64-nvidia-cuda "-march=$arch")
    front=(-x cuda -nocudalib -nocudainc -Wno-unknown-cuda-version) ;;
esac
case $kernel in
  *.cpp) "clang++$suffix" "${front[@]}" --cuda-device-only "--offload-arch=$arch" -fgpu-rdc \
    -O2 -I "$include" -c -emit-llvm "$kernel" -o "$work/kernel.bc" ;;
  *) "clang$suffix" "${target[@]}" -x ir -c -emit-llvm "$kernel" -o "$work/kernel.bc" ;;
esac
# Newer LLVMs spell the same data layout otherwise, and would warn.
"llvm-link$suffix" --suppress-warnings --only-needed "$work/kernel.bc" "$bitcode" \
  -o "$work/linked.bc"
# All but the kernel and the state, which the host sets, may go once it has been inlined.
"opt$suffix" -passes='internalize,default<O3>' \
  -internalize-public-api-list=ring,mori_shmem_module_state_v2 "$work/linked.bc" -o "$work/ready.bc"
case $arch in
  gfx*) "clang$suffix" "${target[@]}" -O3 "$work/ready.bc" -o "$output" ;;
  sm_*) "clang$suffix" "${target[@]}" -O3 -S "$work/ready.bc" -o "$work/kernel.ptx"
    ptxas "-arch=$arch" "$work/kernel.ptx" -o "$output" ;;
esac
