// The two matrix products of attention on tiles: queries with keys, and softmax weights with values.
//
// Keys and values are stored in blocks of 32 positions, in the order in which a tile product reads its second factor. A
// block of keys has two tiles of 16 positions, with pairs of their D numbers interleaved. A block of values has 16
// pairs of positions, interleaved.
//
// The functions with a `prefetch` argument call `prefetch.step()` for every block of positions.
#pragma once
#include <algorithm>
#include <cmath>

#include "prefetch.h"
#include "tiles.h"

#ifdef HAS_TILES
constexpr int BLOCK = 32;   // positions
constexpr int CHUNK = 512;  // positions whose scores exist at once: the row length of `scores` and `probs`
constexpr int GROUP = 64;   // numbers of a value that are accumulated in one pass

// Writes the key of position `within` to its place in a block.
inline void pack_key(const bf16* key, int64_t within, int64_t D, bf16* block) {
    bf16* to = block + within / TILE * TILE * D + within % TILE * 2;
    for (int64_t d = 0; d < D; d += 2) std::memcpy(to + d * TILE, key + d, 2 * sizeof(bf16));
}

inline void pack_value(const bf16* value, int64_t within, int64_t D, bf16* block) {
    bf16* to = block + within / 2 * 2 * D + within % 2;
    for (int64_t d = 0; d < D; d++) to[2 * d] = value[d];
}

// Computes scores (16, CHUNK), the products of `rows` (16, D) with the keys of n positions, a multiple of BLOCK. The
// blocks of keys are `stride` numbers apart. Only the first `num_rows` rows are needed. The whole tile is computed if
// this takes no longer.
#ifdef __AMX_BF16__
inline void score(const bf16* rows, int num_rows, const bf16* keys, int64_t stride, int64_t D, int64_t n, float* scores,
                  Prefetch& prefetch) {
    for (int64_t at = 0; at < n; at += BLOCK, keys += stride) {
        prefetch.step();
        _tile_zero(0);
        _tile_zero(1);
        for (int64_t d = 0; d < D; d += 32) {
            _tile_loadd(4, rows + d, D * sizeof(bf16));
            _tile_loadd(6, keys + d * TILE, 64);
            _tile_loadd(7, keys + (D + d) * TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
        }
        _tile_stored(0, scores + at, CHUNK * sizeof(float));
        _tile_stored(1, scores + at + TILE, CHUNK * sizeof(float));
    }
}
#else
template <int R>
inline void score_rows(const bf16* rows, const bf16* keys, int64_t D, float* scores) {
    __m512 sums[R][2] = {};
    multiply<R, 2>(rows, D, keys, D * TILE, LINE_NUMBERS, D / 2, sums);
    store<R, 2>(sums, scores, CHUNK);
}

inline void score(const bf16* rows, int num_rows, const bf16* keys, int64_t stride, int64_t D, int64_t n, float* scores,
                  Prefetch& prefetch) {
    for (int64_t at = 0; at < n; at += BLOCK, keys += stride) {
        prefetch.step();
        int row = 0;
        for (; num_rows - row > 4; row += 8) score_rows<8>(rows + row * D, keys, D, scores + row * CHUNK + at);
        if (row < num_rows) score_rows<4>(rows + row * D, keys, D, scores + row * CHUNK + at);
    }
}
#endif

// Sets a row's scores outside from..to to -inf, so that their softmax weight is 0.
inline void mask_scores(float* scores, int64_t from, int64_t to, int64_t n) {
    std::fill(scores, scores + from, -INFINITY);
    std::fill(scores + to, scores + n, -INFINITY);
}

// One step of online softmax (1805.02867): the unnormalised probabilities e^(score scale - top) of one row of n scores,
// some of them masked. `top` is the row's largest scaled score so far, `total` the sum of its probabilities, and `out`
// the D values accumulated with them; the last two are rescaled when `top` grows.
inline void online_softmax(const float* scores, int64_t n, float scale, int64_t D, float& top, float& total,
                           bf16* probs, float* out, Prefetch& prefetch) {
    float lanes[BLOCK];  // lane k takes every 32nd position, so that only 32 partial results are left to reduce
    std::fill(lanes, lanes + BLOCK, top);
    for (int64_t at = 0; at < n; at += BLOCK) {
        prefetch.step();
#pragma omp simd
        for (int k = 0; k < BLOCK; k++)
            lanes[k] = scores[at + k] * scale > lanes[k] ? scores[at + k] * scale : lanes[k];
    }
    for (int half = BLOCK / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lanes[k] = lanes[k + half] > lanes[k] ? lanes[k + half] : lanes[k];
    const float highest = lanes[0], shift = highest == -INFINITY ? 0.0f : highest;
    std::fill(lanes, lanes + BLOCK, 0.0f);
    for (int64_t at = 0; at < n; at += BLOCK) {
        prefetch.step();
#pragma omp simd
        for (int k = 0; k < BLOCK; k++) {
            const float prob = fast_exp(scores[at + k] * scale - shift);
            lanes[k] += prob;
            probs[at + k] = round_to<bf16>(prob);
        }
    }
    for (int half = BLOCK / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lanes[k] += lanes[k + half];
    if (highest != top) {
        const float keep = fast_exp(top - shift);
        total *= keep;
        for (int64_t d = 0; d < D; d++) out[d] *= keep;
    }
    top = highest;
    total += lanes[0];
}

// out (16, D) += probs (16, CHUNK) times the values of n positions. D is a multiple of GROUP. Only the
// first `num_rows` are needed, as above.
#ifdef __AMX_BF16__
inline void accumulate_values(const bf16* probs, int num_rows, const bf16* values, int64_t stride, int64_t D, int64_t n,
                              float* out, Prefetch& prefetch) {
    const int64_t row = D * sizeof(float), pair = 2 * D * sizeof(bf16);
    for (int64_t d = 0; d < D; d += GROUP, out += GROUP) {
        _tile_loadd(0, out, row);
        _tile_loadd(1, out + TILE, row);
        _tile_loadd(2, out + 2 * TILE, row);
        _tile_loadd(3, out + 3 * TILE, row);
        const bf16* block = values + 2 * d;
        for (int64_t at = 0; at < n; at += BLOCK, block += stride) {
            prefetch.step();
            _tile_loadd(4, probs + at, CHUNK * sizeof(bf16));
            _tile_loadd(5, block, pair);
            _tile_loadd(6, block + 2 * TILE, pair);
            _tile_dpbf16ps(0, 4, 5);
            _tile_dpbf16ps(1, 4, 6);
            _tile_loadd(5, block + 4 * TILE, pair);
            _tile_loadd(6, block + 6 * TILE, pair);
            _tile_dpbf16ps(2, 4, 5);
            _tile_dpbf16ps(3, 4, 6);
        }
        _tile_stored(0, out, row);
        _tile_stored(1, out + TILE, row);
        _tile_stored(2, out + 2 * TILE, row);
        _tile_stored(3, out + 3 * TILE, row);
    }
}
#else
inline void accumulate_values(const bf16* probs, int num_rows, const bf16* values, int64_t stride, int64_t D, int64_t n,
                              float* out, Prefetch& prefetch) {
    constexpr int R = 4, C = GROUP / TILE;
    for (int row = 0; row < num_rows; row += R)
        for (int64_t d = 0; d < D; d += GROUP) {
            __m512 sums[R][C];
            load<R, C>(out + row * D + d, D, sums);
            const bf16* block = values + 2 * d;
            for (int64_t at = 0; at < n; at += BLOCK, block += stride) {
                prefetch.step();
                multiply<R, C>(probs + row * CHUNK + at, CHUNK, block, LINE_NUMBERS, 2 * D, BLOCK / 2, sums);
            }
            store<R, C>(sums, out + row * D + d, D);
        }
}
#endif
#endif
