// HAS_TILES is defined if the target CPU can multiply bfloat16 matrices: with Intel's AMX unit, or with AVX512-BF16 and
// AVX512-VNNI, which newer CPUs of Intel and AMD have.
#pragma once
#if defined(__AMX_BF16__) || defined(__AVX512BF16__) && defined(__AVX512VNNI__)
#define HAS_TILES
#endif
