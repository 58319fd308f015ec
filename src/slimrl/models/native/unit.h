// HAS_TILES: whether the CPU that this is compiled for multiplies bfloat16 matrices, with Intel's AMX unit or with the
// instructions of AVX512 that newer CPUs of Intel and AMD have.
#pragma once
#if defined(__AMX_BF16__) || defined(__AVX512BF16__) && defined(__AVX512VNNI__)
#define HAS_TILES
#endif
