// Products of rows with a linear layer's weights, in tiles.
//
// The weights are stored in panels of 32 outputs. A panel is a row of pairs of tiles, in the order in which they are
// read. A block of 32 rows and a panel make 2 x 2 tiles of accumulators, which stay in registers from the first input
// to the last. Every row is accumulated in the same order, so its result does not depend on the other rows.
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

}  // namespace

int64_t panel_bytes(const Weights& weights) { return PANEL * weights.K * int64_t(sizeof(bf16)); }

const char* first_panel(const Weights* weights) {
    return weights == nullptr ? nullptr : panel_of(*weights, ThreadPanels(*weights).begin);
}

void team_product(const Weights& weights, const Rows& batch, const Weights* next) {
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
#pragma omp barrier
}

// Copies the rows of `weight` (N, K) into the panels of `packed`. If `half` is -1, row n becomes output first + n. If
// `half` is 0 (gate) or 1 (up), row n becomes output n of this half of the panels, so that gate and up are interleaved.
// An output's weights fill column n of every other tile, a pair of numbers in each row.
extern "C" void pack(const bf16* weight, int64_t N, int64_t K, int64_t first, int64_t half, uint32_t* packed,
                     int threads) {
    const int64_t lines = K / DEPTH;
#pragma omp parallel for num_threads(threads)
    for (int64_t n = 0; n < N; n++) {
        const int64_t tile = half < 0 ? (first + n) / TILE : 2 * (n / TILE) + half;
        uint32_t* tiles = packed + (tile / 2 * lines * 2 + tile % 2) * TILE * TILE + n % TILE;
        const uint32_t* pairs = (const uint32_t*)(weight + n * K);
        for (int64_t line = 0; line < lines; line++, pairs += TILE, tiles += 2 * TILE * TILE)
            for (int pair = 0; pair < TILE; pair++) tiles[pair * TILE] = pairs[pair];
    }
}

// Computes out (M, N) = x (M, K) times the packed weights. `epilogue` 0 adds the weights' bias (N), if there is one. 1
// adds `plus` (M, N), which may be `out`. 2 computes silu(gate) up (M, N / 2) for weights packed in halves.
extern "C" void product(const bf16* x, int64_t M, const Weights* weights, bf16* out, const bf16* plus, int64_t epilogue,
                        int threads) {
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        team_product(*weights, {x, M, out, plus, Epilogue(epilogue)}, nullptr);
    }
}
#endif
