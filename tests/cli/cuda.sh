#!/usr/bin/env bash
# cuda.sh: the program on the CUDA backend: without a driver, and whole models before the emulated one
# (tests/simt).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
simt=$(dirname "$EBRO")/tests/simt
words=(--chat -p "$recall" -n 12 --no-selftest)

if [ ! -e "$(dirname "$EBRO")/ebro_cuda.so" ]; then
    skip "there is no CUDA backend here: nvcc was not found"
    finish
fi
if ! ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    fails "no driver: exit code 3 and the reason" 3 "there is no NVIDIA driver here" run -dev CUDA0 "${words[@]}"
    run devices
    [ $rc -eq 0 ] && grep -q 'no NVIDIA driver' "$out" "$err"
    result $? "devices says so too, and that is no error"
fi

run run -dev CPU -ctk bf16 "${words[@]}"
cp "$out" "$work/want"
grep -q 7406 "$work/want"
result $? "the CPU recalls the fact"
for wave in 32 64; do
    export LD_LIBRARY_PATH=$simt$wave EBRO_SIMT_ORDER=mixed
    run devices
    [ $rc -eq 0 ] && grep -q "^CUDA0: emulated GPU, waves of $wave (9.0, 0000:00:00.0)" "$out"
    result $? "an emulated device, waves of $wave"
    run run -dev CUDA0 "${words[@]}"
    [ $rc -eq 0 ] && cmp -s "$out" "$work/want"
    result $? "the same text as the CPU's, waves of $wave"
done
export LD_LIBRARY_PATH=${simt}32 EBRO_SIMT_ORDER=backward
run check -dev CUDA0 -dev CPU
[ $rc -eq 0 ] && grep -q ' 0 failed, 0 refused; seed' "$out" && grep -q '^CUDA0 .*ok .*ok' "$out"
result $? "ebro check: operators, the model, and states moved between it and the CPU"
run run -dev CUDA0 -n 4 -p "The whale" --cache-dir "$work/cache" --log 3
[ $rc -eq 0 ] && grep -q 'CUDA0: self-test of' "$err"
result $? "it passes its self-test"
unset EBRO_SIMT_ORDER
EBRO_SIMT_BYTES=3000000 fails "a model that does not fit: needed and free bytes" 4 "bytes: .* are free" run -dev CUDA0 "${words[@]}"
finish
