// HAS_TILES is defined if the target CPU can multiply bfloat16 matrices: with Intel's AMX unit, or with AVX512-BF16,
// which newer CPUs of Intel and AMD have.
#pragma once
#if defined(__AMX_BF16__) || defined(__AVX512BF16__)
#define HAS_TILES
#endif
