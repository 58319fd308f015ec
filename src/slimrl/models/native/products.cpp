// Products of rows with a linear layer's weights, in tiles.
//
// The weights are stored in panels of 32 outputs. A panel is a row of pairs of tiles, in the order in which they are
// read. A block of 32 rows and a panel make 2 x 2 tiles of accumulators, which stay in registers from the first input
// to the last. Every row is accumulated in the same order, so its result does not depend on the other rows.
//
// To read less memory, the weights can be int8, with a scale for each output. Then the rows are int16, split into upper
// and lower bytes, and int8 instructions multiply each half.
#include <algorithm>
#include <vector>

#include "prefetch.h"
#include "team.h"

// Returns 1 if this process may use tiles. For tiles of AMX, the Linux kernel must permit this.
#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int has_tiles() {
    const int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#elif defined(HAS_TILES)
extern "C" int has_tiles() { return 1; }
#else
extern "C" int has_tiles() { return 0; }
#endif

#ifdef HAS_TILES
namespace {

constexpr int PANEL = 32, ROWS = 32, DEPTH = 32;  // outputs of a panel, rows of a block, inputs of a tile
constexpr int LINES = 32;                         // cache lines of a pair of tiles
constexpr int ROW_CHUNK = 256;                    // rows multiplied with a panel while it is in the CPU's cache

// Returns K, rounded up to whole int8 tiles: they have 64 inputs.
int64_t padded_width(int64_t K) { return (K + LINE - 1) / LINE * LINE; }

// Computes the accumulators of one or two tiles of rows with a panel. Each step prefetches `lines` cache lines from
// `fetch` on.
#ifdef __AMX_BF16__
template <int row_tiles>
void block(const bf16* x, int64_t K, const bf16* panel, const char* fetch, int lines, float* sums) {
    _tile_zero(0);
    _tile_zero(1);
    if (row_tiles == 2) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < K; k += DEPTH, panel += 2 * TILE_NUMBERS) {
        for (int line = 0; line < lines; line++, fetch += LINE) _mm_prefetch(fetch, _MM_HINT_T1);
        _tile_loadd(4, x + k, K * sizeof(bf16));
        _tile_loadd(6, panel, 64);
        _tile_loadd(7, panel + TILE_NUMBERS, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (row_tiles == 2) {
            _tile_loadd(5, x + TILE * K + k, K * sizeof(bf16));
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    const int64_t bytes = PANEL * sizeof(float);
    _tile_stored(0, sums, bytes);
    _tile_stored(1, sums + TILE, bytes);
    if (row_tiles == 2) {
        _tile_stored(2, sums + TILE * PANEL, bytes);
        _tile_stored(3, sums + TILE * PANEL + TILE, bytes);
    }
}

// Computes the int32 accumulators of one tile of int16 rows with an int8 panel: `high` for the rows' upper bytes, `low`
// for their lower bytes.
void int8_sums(const int8_t* x, int64_t K, const int8_t* panel, const char* fetch, int lines, int32_t* high,
               int32_t* low) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < K; k += LINE, panel += PANEL * LINE) {
        for (int line = 0; line < lines; line++, fetch += LINE) _mm_prefetch(fetch, _MM_HINT_T1);
        _tile_loadd(4, x + 2 * k, 2 * K);
        _tile_loadd(5, x + 2 * k + LINE, 2 * K);
        _tile_loadd(6, panel, LINE);
        _tile_loadd(7, panel + TILE * LINE, LINE);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    const int64_t bytes = PANEL * sizeof(int32_t);
    _tile_stored(0, high, bytes);
    _tile_stored(1, high + TILE, bytes);
    _tile_stored(2, low, bytes);
    _tile_stored(3, low + TILE, bytes);
}
#else
template <int row_tiles>
void block(const bf16* x, int64_t K, const bf16* panel, const char* fetch, int lines, float* sums) {
    constexpr int R = 8;
    for (int row = 0; row < row_tiles * TILE; row += R, x += R * K, sums += R * PANEL) {
        __m512 acc[R][2] = {};
        for (int64_t k = 0; k < K; k += DEPTH) {
            for (int line = 0; row == 0 && line < lines; line++, fetch += LINE) _mm_prefetch(fetch, _MM_HINT_T1);
            multiply<R, 2>(x + k, K, panel + 2 * TILE * k, TILE_NUMBERS, LINE_NUMBERS, TILE, acc);
        }
        store<R, 2>(acc, sums, PANEL);
    }
}

// The instruction reads the rows' bytes as unsigned. So 128 is added to the upper bytes, and its contribution `share`
// is subtracted at the end.
void int8_sums(const int8_t* x, int64_t K, const int8_t* panel, const char* fetch, int lines, int32_t* high,
               int32_t* low) {
    constexpr int R = 4;
    const __m512i more = _mm512_set1_epi8(-128);
    for (int row = 0; row < TILE; row += R, x += R * 2 * K, high += R * PANEL, low += R * PANEL) {
        __m512i upper[R][2] = {}, lower[R][2] = {}, share[2] = {};
        const int8_t* weights = panel;
        for (int64_t k = 0; k < K; k += LINE, weights += PANEL * LINE) {
            for (int line = 0; row == 0 && line < lines; line++, fetch += LINE) _mm_prefetch(fetch, _MM_HINT_T1);
            for (int64_t at = 0; at < LINE; at += 4)
#pragma GCC unroll 2
                for (int c = 0; c < 2; c++) {
                    const __m512i line = _mm512_loadu_si512(weights + c * TILE * LINE + at * TILE);
                    share[c] = _mm512_dpbusd_epi32(share[c], more, line);
#pragma GCC unroll 4
                    for (int r = 0; r < R; r++) {
                        const int8_t* halves = x + r * 2 * K + 2 * k + at;
                        int32_t four[2];
                        std::memcpy(&four[0], halves, 4);
                        std::memcpy(&four[1], halves + LINE, 4);
                        const __m512i above = _mm512_xor_si512(_mm512_set1_epi32(four[0]), more);
                        upper[r][c] = _mm512_dpbusd_epi32(upper[r][c], above, line);
                        lower[r][c] = _mm512_dpbusd_epi32(lower[r][c], _mm512_set1_epi32(four[1]), line);
                    }
                }
        }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < 2; c++) {
                _mm512_storeu_si512(high + r * PANEL + c * TILE, _mm512_sub_epi32(upper[r][c], share[c]));
                _mm512_storeu_si512(low + r * PANEL + c * TILE, lower[r][c]);
            }
    }
}
#endif

// Conversions of sixteen numbers at once. Like the matrix unit, they flush subnormals to zero.
__m512 load_bf16(const bf16* x) { return _mm512_cvtpbh_ps((__m256bh)_mm256_loadu_si256((const __m256i*)x)); }

void store_bf16(__m512 x, bf16* to) { _mm256_storeu_si256((__m256i*)to, (__m256i)_mm512_cvtneps_pbh(x)); }

__m512 rounded_to_bf16(__m512 x) { return _mm512_cvtpbh_ps(_mm512_cvtneps_pbh(x)); }

// Computes silu(gate) up of sixteen numbers each. `gates` and `ups` are rounded to bfloat16 first, like the outputs of
// separate layers.
void silu_gate(const float* gates, const float* ups, bf16* to) {
    alignas(64) float gate[TILE], up[TILE];
    _mm512_store_ps(gate, rounded_to_bf16(_mm512_load_ps(gates)));
    _mm512_store_ps(up, rounded_to_bf16(_mm512_load_ps(ups)));
#pragma omp simd simdlen(TILE)
    for (int j = 0; j < TILE; j++) gate[j] = gate[j] * sigmoid(gate[j]) * up[j];
    store_bf16(_mm512_load_ps(gate), to);
}

// Computes the product of one tile of int16 rows with an int8 panel, scaled back to float32.
void int8_block(const int8_t* x, int64_t K, const int8_t* panel, const char* fetch, int lines, const float* row_scales,
                const float* scales, float* sums) {
    alignas(64) int32_t high[TILE * PANEL], low[TILE * PANEL];
    int8_sums(x, K, panel, fetch, lines, high, low);
    for (int row = 0; row < TILE; row++)
#pragma omp simd
        for (int j = 0; j < PANEL; j++) {
            const float sum = 256.0f * high[row * PANEL + j] + low[row * PANEL + j];
            sums[row * PANEL + j] = sum * (row_scales[row] * scales[j]);
        }
}

// Returns the largest magnitude, or NaN if x has a NaN. Without the sign, the bits sort in the order of the numbers,
// with NaN last.
float largest_of(const bf16* x, int64_t K) {
    uint16_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t k = 0; k < K; k++) largest = std::max<uint16_t>(largest, x[k].bits & 0x7fff);
    return to_float(bf16{largest});
}

// Symmetric quantization: the nearest integers times a scale. An infinite number or NaN makes the scale infinite or
// NaN.
struct Scaled {
    float scale, inverse;

    Scaled(const bf16* x, int64_t K, float top) {
        const float largest = largest_of(x, K);
        scale = largest / top;
        inverse = largest > 0 ? top / largest : 0;
    }
    __m512i quantize(const bf16* x) const {
        return _mm512_cvtps_epi32(_mm512_mul_ps(load_bf16(x), _mm512_set1_ps(inverse)));
    }
};

// Quantizes a row to int16. For every 64 numbers, writes the upper bytes, then the lower bytes. Returns the scale.
float split_row(const bf16* x, int64_t K, int8_t* halves) {
    const Scaled scaled(x, K, 32767);
    for (int64_t k = 0; k < K; k += TILE) {
        const __m512i quantized = scaled.quantize(x + k);
        int8_t* to = halves + 2 * (k / LINE * LINE) + k % LINE;
        _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8(_mm512_srai_epi32(quantized, 8)));
        _mm_storeu_si128((__m128i*)(to + LINE), _mm512_cvtepi32_epi8(quantized));
    }
    return scaled.scale;
}

// Quantizes one output's weights to int8. Returns the scale.
float quantize_weights(const bf16* weights, int64_t K, int8_t* to) {
    const Scaled scaled(weights, K, 127);
    for (int64_t k = 0; k < K; k += TILE)
        _mm_storeu_si128((__m128i*)(to + k), _mm512_cvtepi32_epi8(scaled.quantize(weights + k)));
    return scaled.scale;
}

// Applies the epilogue to a panel's accumulators of rows from `first` on, and writes the results to `out` (M, width).
void apply_epilogue(const float* sums, int rows, int64_t panel, int64_t first, const Rows& batch, const bf16* bias,
                    int64_t width) {
    const int64_t column = panel * (batch.epilogue == Epilogue::Gate ? TILE : PANEL);
    const int columns = int(std::min<int64_t>(PANEL, width - column));
    for (int64_t place = first * width + column; rows > 0; rows--, sums += PANEL, place += width) {
        if (batch.epilogue == Epilogue::Gate) {
            silu_gate(sums, sums + TILE, batch.out + place);
            continue;
        }
        const bf16* added = batch.epilogue == Epilogue::Add ? batch.plus + place
                            : bias == nullptr               ? nullptr
                                                            : bias + column;
        for (int j = 0; j < columns; j += TILE) {
            const __m512 sum = _mm512_load_ps(sums + j);
            store_bf16(added == nullptr ? sum : _mm512_add_ps(sum, load_bf16(added + j)), batch.out + place + j);
        }
    }
}

// Writes one output's weights to column n of every other tile, four bytes in each row.
void place_column(const void* weights, int64_t lines, uint32_t* tiles, int64_t n) {
    const uint32_t* parts = (const uint32_t*)weights;
    for (int64_t line = 0; line < lines; line++, parts += TILE, tiles += 2 * TILE * TILE)
        for (int part = 0; part < TILE; part++) tiles[part * TILE + n] = parts[part];
}

}  // namespace

// Copies the rows of `weight` (N, K) into the panels of `packed`. If `half` is -1, row n becomes output first + n. If
// `half` is 0 (gate) or 1 (up), row n becomes output n of this half of the panels, so that gate and up are interleaved.
// If `scales` is not null, it gets one scale for each output of the panels, and `packed` is int8.
extern "C" void pack(const bf16* weight, int64_t N, int64_t K, int64_t first, int64_t half, uint32_t* packed,
                     float* scales, int threads) {
    const int64_t lines = scales == nullptr ? K / DEPTH : padded_width(K) / LINE;
#pragma omp parallel num_threads(threads)
    {
        std::vector<int8_t> int8_row(lines * LINE);
#pragma omp for
        for (int64_t n = 0; n < N; n++) {
            const int64_t tile = half < 0 ? (first + n) / TILE : 2 * (n / TILE) + half;
            uint32_t* tiles = packed + (tile / 2 * lines * 2 + tile % 2) * TILE * TILE;
            if (scales != nullptr)
                scales[tile * TILE + n % TILE] = quantize_weights(weight + n * K, K, int8_row.data());
            place_column(scales == nullptr ? (const void*)(weight + n * K) : int8_row.data(), lines, tiles, n % TILE);
        }
    }
}

int64_t int8_workspace_bytes(int64_t M, int64_t K) {
    const int64_t rows = (M + TILE - 1) / TILE * TILE;
    return rows * (2 * padded_width(K) + int64_t(sizeof(float)));
}

int64_t panel_bytes(const Weights& weights) {
    return PANEL * (weights.scales == nullptr ? weights.K * int64_t(sizeof(bf16)) : padded_width(weights.K));
}

namespace {

// The range of panels that the calling thread computes.
struct ThreadPanels {
    int64_t begin, end;

    explicit ThreadPanels(const Weights& weights) {
        const int64_t panels = (weights.N + PANEL - 1) / PANEL, threads = omp_get_num_threads();
        begin = panels * omp_get_thread_num() / threads;
        end = panels * (omp_get_thread_num() + 1) / threads;
    }
};

const char* panel_of(const Weights& weights, int64_t panel) {
    return (const char*)weights.packed + panel * panel_bytes(weights);
}

// Prefetches the next panel, a few lines in each step, while the current panel is used `passes` times.
struct PanelPrefetch {
    const char* from;
    int lines;  // per step through the inputs

    PanelPrefetch(const Weights& weights, int64_t panel, int64_t end, int64_t passes, const Weights* next) {
        from = panel + 1 < end ? panel_of(weights, panel + 1) : first_panel(next);
        lines = from == nullptr ? 0 : int(LINES / passes) + 1;
    }
    void advance(int64_t steps) { from += lines * steps * LINE; }
};

// Computes the product of bfloat16 rows and weights.
void bf16_product(const Weights& weights, const Rows& batch, const Weights* next) {
    const int64_t K = weights.K, M = batch.M, width = batch.epilogue == Epilogue::Gate ? weights.N / 2 : weights.N;
    alignas(64) float sums[ROWS * PANEL];
    // The rows that do not fill a tile, padded with zeros.
    const int64_t full = M / TILE * TILE;
    std::vector<bf16> tail(full < M ? TILE * K : 0);
    if (full < M) std::memcpy(tail.data(), batch.x + full * K, (M - full) * K * sizeof(bf16));
    const ThreadPanels panels(weights);
    for (int64_t begin = 0; begin < M; begin += ROW_CHUNK) {
        const int64_t end = std::min(begin + ROW_CHUNK, M);
        for (int64_t panel = panels.begin; panel < panels.end; panel++) {
            const bf16* packed = (const bf16*)panel_of(weights, panel);
            PanelPrefetch fetch(weights, panel, panels.end, (end - begin + ROWS - 1) / ROWS, next);
            for (int64_t row = begin; row < end; fetch.advance(K / DEPTH)) {
                const int rows = row + ROWS <= full ? ROWS : row < full ? TILE : int(M - row);
                const bf16* x = row < full ? batch.x + row * K : tail.data();
                (rows == ROWS ? block<2> : block<1>)(x, K, packed, fetch.from, fetch.lines, sums);
                apply_epilogue(sums, rows, panel, row, batch, weights.bias, width);
                row += rows;
            }
        }
    }
}

// Computes the product of rows, quantized to int16, and int8 weights.
void int8_product(const Weights& weights, const Rows& batch, int8_t* workspace, const Weights* next) {
    const int64_t K = padded_width(weights.K), M = batch.M,
                  width = batch.epilogue == Epilogue::Gate ? weights.N / 2 : weights.N;
    float* row_scales = (float*)(workspace + (M + TILE - 1) / TILE * TILE * 2 * K);
    alignas(64) float sums[TILE * PANEL];
#pragma omp for schedule(static)
    for (int64_t row = 0; row < M; row++)
        row_scales[row] = split_row(batch.x + row * weights.K, weights.K, workspace + row * 2 * K);
    const ThreadPanels panels(weights);
    for (int64_t begin = 0; begin < M; begin += ROW_CHUNK) {
        const int64_t end = std::min(begin + ROW_CHUNK, M);
        for (int64_t panel = panels.begin; panel < panels.end; panel++) {
            const int8_t* packed = (const int8_t*)panel_of(weights, panel);
            PanelPrefetch fetch(weights, panel, panels.end, (end - begin + TILE - 1) / TILE, next);
            for (int64_t row = begin; row < end; row += TILE, fetch.advance(K / LINE)) {
                const int rows = int(std::min<int64_t>(TILE, M - row));
                int8_block(workspace + row * 2 * K, K, packed, fetch.from, fetch.lines, row_scales + row,
                           weights.scales + panel * PANEL, sums);
                apply_epilogue(sums, rows, panel, row, batch, weights.bias, width);
            }
        }
    }
}

}  // namespace

const char* first_panel(const Weights* weights) {
    return weights == nullptr ? nullptr : panel_of(*weights, ThreadPanels(*weights).begin);
}

void team_product(const Weights& weights, const Rows& rows, int8_t* workspace, const Weights* next) {
    if (weights.scales == nullptr)
        bf16_product(weights, rows, next);
    else
        int8_product(weights, rows, workspace, next);
#pragma omp barrier
}

// Computes out (M, N) = x (M, K) times the packed weights. `epilogue` 0 adds the weights' bias (N), if there is one. 1
// adds `plus` (M, N), which may be `out`. 2 computes silu(gate) up (M, N / 2) for weights packed in halves.
extern "C" void product(const bf16* x, int64_t M, const Weights* weights, bf16* out, const bf16* plus, int64_t epilogue,
                        int threads) {
    std::vector<int8_t> workspace(weights->scales == nullptr ? 0 : int8_workspace_bytes(M, weights->K));
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        team_product(*weights, {x, M, out, plus, Epilogue(epilogue)}, workspace.data(), nullptr);
    }
}
#endif
