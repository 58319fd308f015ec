// Products of bfloat16 matrices in tiles of 16 rows of 64 bytes. Intel's AMX unit has eight registers for tiles, and an
// instruction that multiplies two tiles. On a CPU with AVX512-BF16 alone, the same tiles are processed line by line.
// Its instruction multiplies a pair of numbers with each of sixteen pairs.
#pragma once
#include "cpu_features.h"

#ifdef HAS_TILES
#include <immintrin.h>

#include "bf16.h"

constexpr int TILE = 16;           // rows of a tile
constexpr int TILE_NUMBERS = 512;  // bfloat16 numbers in a tile

#ifdef __AMX_BF16__
// While an object of this class is in scope, the thread's tile registers are configured with the full size.
struct Tiles {
    Tiles() {
        // Constant, because gcc 12 does not know that the instruction reads the whole struct. It may write a variable
        // too late.
        static const struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } config;
        _tile_loadconfig(&config);
    }
    ~Tiles() { _tile_release(); }
};
#else
struct Tiles {
    Tiles() {}  // AVX512 needs no configuration
};

constexpr int LINE_NUMBERS = 32;  // bfloat16 numbers in a line of a tile: sixteen pairs

// acc (R, C, 16) += R rows, `stride` numbers apart, times tile lines. Each pair of a row's numbers is broadcast and
// multiplied with C lines that lie `beside` numbers apart; the next pair uses the lines `below` numbers further on.
template <int R, int C>
inline __attribute__((always_inline)) void multiply(const bf16* rows, int64_t stride, const bf16* lines, int64_t beside,
                                                    int64_t below, int64_t pairs, __m512 (&acc)[R][C]) {
    for (int64_t p = 0; p < pairs; p++, rows += 2, lines += below) {
        __m512bh line[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) line[c] = (__m512bh)_mm512_loadu_si512(lines + c * beside);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            int32_t pair_bits;
            std::memcpy(&pair_bits, rows + r * stride, sizeof pair_bits);
            const __m512bh pair = (__m512bh)_mm512_set1_epi32(pair_bits);
#pragma GCC unroll 4
            for (int c = 0; c < C; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], pair, line[c]);
        }
    }
}

template <int R, int C>
inline __attribute__((always_inline)) void load(const float* from, int64_t stride, __m512 (&acc)[R][C]) {
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) acc[r][c] = _mm512_loadu_ps(from + r * stride + c * TILE);
}

template <int R, int C>
inline __attribute__((always_inline)) void store(const __m512 (&acc)[R][C], float* to, int64_t stride) {
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) _mm512_storeu_ps(to + r * stride + c * TILE, acc[r][c]);
}
#endif
#endif
