// The AMX unit: eight registers, each of 16 rows of 64 bytes, and one instruction that multiplies bfloat16 matrices.
#pragma once
#ifdef __AMX_BF16__
#include <immintrin.h>

#include "numbers.h"

constexpr int TILE = 16;           // rows of a tile
constexpr int TILE_NUMBERS = 512;  // bfloat16 numbers in one

// Gives the thread that makes it the tiles, all of full size, until it goes out of scope.
struct Tiles {
    Tiles() {
        // Constant, because gcc 12 does not know that the instruction reads all of it, and may write it too late.
        static const struct alignas(64) {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
            uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
        } config;
        _tile_loadconfig(&config);
    }
    ~Tiles() { _tile_release(); }
};
#endif
