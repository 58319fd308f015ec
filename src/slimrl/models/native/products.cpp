// Products of rows with a linear layer's weights on the AMX unit.
//
// The weights lie in panels of 32 outputs, each a row of pairs of tiles, in the order in which they are read. A block
// of 32 rows and a panel make 2 x 2 tiles of results, which stay in registers from the first input to the last. Every
// row's sums are added up in the same order, whatever rows it is computed with.
#include <algorithm>
#include <vector>

#include "teams.h"

// Whether this process may use the AMX unit.
#ifdef __AMX_BF16__
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int has_tiles() {
    const int request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}
#else
extern "C" int has_tiles() { return 0; }
#endif

#ifdef __AMX_BF16__
namespace {

constexpr int PANEL = 32, ROWS = 32, DEPTH = 32;  // outputs of a panel, rows of a block, inputs of a tile
constexpr int LINE = 32, LINES = 32;              // numbers in a cache line, lines of a pair of tiles
constexpr int SUPER = 256;                        // rows that pass over a panel while it is in the cache

template <int row_tiles>
void block(const bf16* x, int64_t K, const bf16* panel, const bf16* fetch, int lines, float* sums) {
    _tile_zero(0);
    _tile_zero(1);
    if (row_tiles == 2) {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < K; k += DEPTH, panel += 2 * TILE_NUMBERS) {
        for (int line = 0; line < lines; line++, fetch += LINE) _mm_prefetch((const char*)fetch, _MM_HINT_T1);
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

// Sixteen numbers at once; like the matrix unit, these take what is below 2^-126 for zero.
__m512 wide(const bf16* x) { return _mm512_cvtpbh_ps((__m256bh)_mm256_loadu_si256((const __m256i*)x)); }

void narrow(__m512 x, bf16* to) { _mm256_storeu_si256((__m256i*)to, (__m256i)_mm512_cvtneps_pbh(x)); }

__m512 rounded_to_bf16(__m512 x) { return _mm512_cvtpbh_ps(_mm512_cvtneps_pbh(x)); }

// silu(gate) up, of sixteen of each.
void mix(const float* gates, const float* ups, bf16* to) {
    alignas(64) float gate[TILE], up[TILE];
    _mm512_store_ps(gate, rounded_to_bf16(_mm512_load_ps(gates)));
    _mm512_store_ps(up, rounded_to_bf16(_mm512_load_ps(ups)));
#pragma omp simd simdlen(TILE)
    for (int j = 0; j < TILE; j++) gate[j] = gate[j] * sigmoid(gate[j]) * up[j];
    narrow(_mm512_load_ps(gate), to);
}

void finish(const float* sums, int rows, int columns, bf16* out, const bf16* plus, const bf16* bias, int64_t N,
            Then then) {
    for (int row = 0; row < rows; row++, sums += PANEL, out += N, plus += N) {
        if (then == GATE) {
            mix(sums, sums + TILE, out);
            continue;
        }
        const bf16* added = then == ADD ? plus : bias;
        for (int j = 0; j < columns; j += TILE) {
            const __m512 sum = _mm512_load_ps(sums + j);
            narrow(added == nullptr ? sum : _mm512_add_ps(sum, wide(added + j)), out + j);
        }
    }
}

}  // namespace

// Puts the rows of `weight` (N, K) into the panels of `packed`, row n as output first + n, or, spread over the halves
// of panels (for a gate and what it gates, interleaved), as output n of the given half: 0 or 1; -1 is not spread.
extern "C" void pack(const bf16* weight, int64_t N, int64_t K, int64_t first, int64_t half, bf16* packed, int threads) {
    const int64_t depth = K / DEPTH;
#pragma omp parallel for num_threads(threads)
    for (int64_t n = 0; n < N; n += TILE) {
        const int64_t tile = half < 0 ? (first + n) / TILE : 2 * (n / TILE) + half;
        uint32_t* target = (uint32_t*)packed + tile / 2 * depth * TILE_NUMBERS + tile % 2 * (TILE_NUMBERS / 2);
        for (int64_t k = 0; k < depth; k++, target += TILE_NUMBERS)
            for (int row = 0; row < TILE && n + row < N; row++) {
                const uint32_t* pairs = (const uint32_t*)(weight + (n + row) * K + k * DEPTH);
                for (int pair = 0; pair < DEPTH / 2; pair++) target[pair * TILE + row] = pairs[pair];
            }
    }
}

void team_product(const Weights& weights, const bf16* x, int64_t M, bf16* out, const bf16* plus, Then then) {
    const bf16* bias = weights.bias;
    const int64_t K = weights.K, N = weights.N;
    const int64_t panels = (N + PANEL - 1) / PANEL, width = then == GATE ? N / 2 : N;
    alignas(64) float sums[ROWS * PANEL];
    // Rows that do not fill a tile, followed by what does no harm.
    const int64_t whole = M / TILE * TILE;
    std::vector<bf16> rest(whole < M ? TILE * K : 0);
    if (whole < M) std::memcpy(rest.data(), x + whole * K, (M - whole) * K * sizeof(bf16));
    for (int64_t begin = 0; begin < M; begin += SUPER) {
        const int64_t end = begin + SUPER < M ? begin + SUPER : M;
#pragma omp for schedule(static) nowait
        for (int64_t panel = 0; panel < panels; panel++) {
            const bf16* packed = weights.packed + panel * K * PANEL;
            const int64_t column = panel * (then == GATE ? TILE : PANEL);
            const int columns = width - column < PANEL ? int(width - column) : PANEL;
            // The next panel comes into the cache little by little, while this one is computed with.
            const int lines = LINES * ROWS / int(std::max<int64_t>(end - begin, ROWS)) + 1;
            const bf16* fetch = packed + K * PANEL;
            for (int64_t row = begin; row < end; fetch += lines * LINE * (K / DEPTH)) {
                const int rows = row + ROWS <= whole ? ROWS : row < whole ? TILE : int(M - row);
                if (rows == ROWS)
                    block<2>(x + row * K, K, packed, fetch, lines, sums);
                else
                    block<1>(row < whole ? x + row * K : rest.data(), K, packed, fetch, lines, sums);
                finish(sums, rows, columns, out + row * width + column, plus + row * width + column,
                       bias == nullptr ? nullptr : bias + column, width, then);
                row += rows;
            }
        }
    }
#pragma omp barrier
}

// out (M, N) = x (M, K) times the packed weights; `then` 1 adds `plus` (M, N), which may be `out`; 2 makes (M, N / 2)
// silu(gate) up of weights packed in halves. `bias` (N), where there is one, is added if nothing else is.
extern "C" void product(const bf16* x, int64_t M, int64_t K, const bf16* packed, int64_t N, bf16* out, const bf16* plus,
                        const bf16* bias, int64_t then, int threads) {
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        team_product({packed, bias, K, N}, x, M, out, plus, Then(then));
    }
}
#endif
