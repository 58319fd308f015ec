// Products of rows with a linear layer's weights, in tiles.
//
// The weights lie in panels of 32 outputs, each a row of pairs of tiles, in the order in which they are read. A block
// of 32 rows and a panel make 2 x 2 tiles of results, which stay in registers from the first input to the last. Every
// row's sums are added up in the same order, whatever rows it is computed with.
//
// So that less memory is read, the weights can be whole numbers of 8 bits, with a scale for each output. The rows are
// whole numbers of 16 bits then: their upper and lower halves, for each of which the unit has an instruction.
#include <omp.h>

#include <algorithm>
#include <vector>

#include "ahead.h"
#include "teams.h"

// Whether this process may use tiles.
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
constexpr int LINES = 32;                         // of the cache, that a pair of tiles takes
constexpr int SUPER = 256;                        // rows that pass over a panel while it is in the cache

// How many whole numbers a row of K becomes: tiles of weights have 64 inputs.
int64_t whole_width(int64_t K) { return (K + LINE - 1) / LINE * LINE; }

// The sums of one or two tiles of rows with a panel.
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

// The sums of one tile of rows with a panel, both of whole numbers: of the rows' upper halves, and of their lower ones.
void whole_sums(const int8_t* x, int64_t K, const int8_t* panel, const char* fetch, int lines, int32_t* high,
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
        __m512 some[R][2] = {};
        for (int64_t k = 0; k < K; k += DEPTH) {
            for (int line = 0; row == 0 && line < lines; line++, fetch += LINE) _mm_prefetch(fetch, _MM_HINT_T1);
            multiply<R, 2>(x + k, K, panel + 2 * TILE * k, TILE_NUMBERS, LINE_NUMBERS, TILE, some);
        }
        store<R, 2>(some, sums, PANEL);
    }
}

// The instruction takes the halves of rows as numbers without a sign: the upper ones get 128 more, whose share is taken
// off again.
void whole_sums(const int8_t* x, int64_t K, const int8_t* panel, const char* fetch, int lines, int32_t* high,
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

// The sums of one tile of rows with a panel, both of whole numbers, brought back to their scales.
void whole_block(const int8_t* x, int64_t K, const int8_t* panel, const char* fetch, int lines, const float* row_scales,
                 const float* scales, float* sums) {
    alignas(64) int32_t high[TILE * PANEL], low[TILE * PANEL];
    whole_sums(x, K, panel, fetch, lines, high, low);
    for (int row = 0; row < TILE; row++)
#pragma omp simd
        for (int j = 0; j < PANEL; j++) {
            const float sum = 256.0f * high[row * PANEL + j] + low[row * PANEL + j];
            sums[row * PANEL + j] = sum * (row_scales[row] * scales[j]);
        }
}

// The largest magnitude, or not a number if there is one: their bits come after those of all others.
float largest_of(const bf16* x, int64_t K) {
    uint16_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t k = 0; k < K; k++) largest = std::max<uint16_t>(largest, x[k].bits & 0x7fff);
    return number(bf16{largest});
}

// Numbers as nearest whole numbers times a scale. What is not finite makes the scale so.
struct Scaled {
    float scale, inverse;

    Scaled(const bf16* x, int64_t K, float top) {
        const float largest = largest_of(x, K);
        scale = largest / top;
        inverse = largest > 0 ? top / largest : 0;
    }
    __m512i whole(const bf16* x) const { return _mm512_cvtps_epi32(_mm512_mul_ps(wide(x), _mm512_set1_ps(inverse))); }
};

// A row in 16 bits: of every 64 numbers the upper halves, then the lower. Returns their scale.
float split_row(const bf16* x, int64_t K, int8_t* halves) {
    const Scaled scaled(x, K, 32767);
    for (int64_t k = 0; k < K; k += TILE) {
        const __m512i whole = scaled.whole(x + k);
        int8_t* to = halves + 2 * (k / LINE * LINE) + k % LINE;
        _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8(_mm512_srai_epi32(whole, 8)));
        _mm_storeu_si128((__m128i*)(to + LINE), _mm512_cvtepi32_epi8(whole));
    }
    return scaled.scale;
}

// Weights in 8 bits. Returns their scale.
float quantize(const bf16* weights, int64_t K, int8_t* numbers) {
    const Scaled scaled(weights, K, 127);
    for (int64_t k = 0; k < K; k += TILE)
        _mm_storeu_si128((__m128i*)(numbers + k), _mm512_cvtepi32_epi8(scaled.whole(weights + k)));
    return scaled.scale;
}

// Writes the sums of rows from `first` on with a panel to where they belong, in rows of `width` numbers.
void finish(const float* sums, int rows, int64_t panel, int64_t first, const Rows& given, const bf16* bias,
            int64_t width) {
    const int64_t column = panel * (given.then == GATE ? TILE : PANEL);
    const int columns = int(std::min<int64_t>(PANEL, width - column));
    for (int64_t place = first * width + column; rows > 0; rows--, sums += PANEL, place += width) {
        if (given.then == GATE) {
            mix(sums, sums + TILE, given.out + place);
            continue;
        }
        const bf16* added = given.then == ADD ? given.plus + place : bias == nullptr ? nullptr : bias + column;
        for (int j = 0; j < columns; j += TILE) {
            const __m512 sum = _mm512_load_ps(sums + j);
            narrow(added == nullptr ? sum : _mm512_add_ps(sum, wide(added + j)), given.out + place + j);
        }
    }
}

// Puts one output's weights into column n of tiles, of which there is another after each: four bytes in every row.
void place(const void* weights, int64_t lines, uint32_t* tiles, int64_t n) {
    const uint32_t* parts = (const uint32_t*)weights;
    for (int64_t line = 0; line < lines; line++, parts += TILE, tiles += 2 * TILE * TILE)
        for (int part = 0; part < TILE; part++) tiles[part * TILE + n] = parts[part];
}

}  // namespace

// Puts the rows of `weight` (N, K) into the panels of `packed`, row n as output first + n, or, spread over the halves
// of panels (for a gate and what it gates, interleaved), as output n of the given half: 0 or 1; -1 is not spread.
// Where there are `scales`, one for each output of the panels, `packed` is of 8 bits.
extern "C" void pack(const bf16* weight, int64_t N, int64_t K, int64_t first, int64_t half, uint32_t* packed,
                     float* scales, int threads) {
    const int64_t lines = scales == nullptr ? K / DEPTH : whole_width(K) / LINE;
#pragma omp parallel num_threads(threads)
    {
        std::vector<int8_t> numbers(lines * LINE);
#pragma omp for
        for (int64_t n = 0; n < N; n++) {
            const int64_t tile = half < 0 ? (first + n) / TILE : 2 * (n / TILE) + half;
            uint32_t* tiles = packed + (tile / 2 * lines * 2 + tile % 2) * TILE * TILE;
            if (scales != nullptr) scales[tile * TILE + n % TILE] = quantize(weight + n * K, K, numbers.data());
            place(scales == nullptr ? (const void*)(weight + n * K) : numbers.data(), lines, tiles, n % TILE);
        }
    }
}

int64_t whole_room(int64_t M, int64_t K) {
    const int64_t rows = (M + TILE - 1) / TILE * TILE;
    return rows * (2 * whole_width(K) + int64_t(sizeof(float)));
}

int64_t panel_bytes(const Weights& weights) {
    return PANEL * (weights.scales == nullptr ? weights.K * int64_t(sizeof(bf16)) : whole_width(weights.K));
}

namespace {

// The calling thread's share of the panels.
struct Share {
    int64_t begin, end;

    explicit Share(const Weights& weights) {
        const int64_t panels = (weights.N + PANEL - 1) / PANEL, threads = omp_get_num_threads();
        begin = panels * omp_get_thread_num() / threads;
        end = panels * (omp_get_thread_num() + 1) / threads;
    }
};

const char* panel_of(const Weights& weights, int64_t panel) {
    return (const char*)weights.packed + panel * panel_bytes(weights);
}

// What comes into the cache little by little, while a panel is computed with `passes` times: the next one.
struct Fetch {
    const char* from;
    int lines;  // between two steps through the inputs

    Fetch(const Weights& weights, int64_t panel, int64_t end, int64_t passes, const Weights* next) {
        from = panel + 1 < end ? panel_of(weights, panel + 1) : first_panel(next);
        lines = from == nullptr ? 0 : int(LINES / passes) + 1;
    }
    void move(int64_t steps) { from += lines * steps * LINE; }
};

// The product of rows and weights of bfloat16.
void narrow_product(const Weights& weights, const Rows& given, const Weights* next) {
    const int64_t K = weights.K, M = given.M, width = given.then == GATE ? weights.N / 2 : weights.N;
    alignas(64) float sums[ROWS * PANEL];
    // Rows that do not fill a tile, followed by what does no harm.
    const int64_t whole = M / TILE * TILE;
    std::vector<bf16> rest(whole < M ? TILE * K : 0);
    if (whole < M) std::memcpy(rest.data(), given.x + whole * K, (M - whole) * K * sizeof(bf16));
    const Share share(weights);
    for (int64_t begin = 0; begin < M; begin += SUPER) {
        const int64_t end = std::min(begin + SUPER, M);
        for (int64_t panel = share.begin; panel < share.end; panel++) {
            const bf16* packed = (const bf16*)panel_of(weights, panel);
            Fetch fetch(weights, panel, share.end, (end - begin + ROWS - 1) / ROWS, next);
            for (int64_t row = begin; row < end; fetch.move(K / DEPTH)) {
                const int rows = row + ROWS <= whole ? ROWS : row < whole ? TILE : int(M - row);
                const bf16* x = row < whole ? given.x + row * K : rest.data();
                (rows == ROWS ? block<2> : block<1>)(x, K, packed, fetch.from, fetch.lines, sums);
                finish(sums, rows, panel, row, given, weights.bias, width);
                row += rows;
            }
        }
    }
}

// The product of rows and weights of whole numbers.
void whole_product(const Weights& weights, const Rows& given, int8_t* room, const Weights* next) {
    const int64_t K = whole_width(weights.K), M = given.M, width = given.then == GATE ? weights.N / 2 : weights.N;
    float* row_scales = (float*)(room + (M + TILE - 1) / TILE * TILE * 2 * K);
    alignas(64) float sums[TILE * PANEL];
#pragma omp for schedule(static)
    for (int64_t row = 0; row < M; row++)
        row_scales[row] = split_row(given.x + row * weights.K, weights.K, room + row * 2 * K);
    const Share share(weights);
    for (int64_t begin = 0; begin < M; begin += SUPER) {
        const int64_t end = std::min(begin + SUPER, M);
        for (int64_t panel = share.begin; panel < share.end; panel++) {
            const int8_t* packed = (const int8_t*)panel_of(weights, panel);
            Fetch fetch(weights, panel, share.end, (end - begin + TILE - 1) / TILE, next);
            for (int64_t row = begin; row < end; row += TILE, fetch.move(K / LINE)) {
                const int rows = int(std::min<int64_t>(TILE, M - row));
                whole_block(room + row * 2 * K, K, packed, fetch.from, fetch.lines, row_scales + row,
                            weights.scales + panel * PANEL, sums);
                finish(sums, rows, panel, row, given, weights.bias, width);
            }
        }
    }
}

}  // namespace

const char* first_panel(const Weights* weights) {
    return weights == nullptr ? nullptr : panel_of(*weights, Share(*weights).begin);
}

void team_product(const Weights& weights, const Rows& rows, int8_t* room, const Weights* next) {
    if (weights.scales == nullptr)
        narrow_product(weights, rows, next);
    else
        whole_product(weights, rows, room, next);
#pragma omp barrier
}

// out (M, N) = x (M, K) times the packed weights; `then` 1 adds `plus` (M, N), which may be `out`; 2 makes (M, N / 2)
// silu(gate) up of weights packed in halves. `bias` (N), where there is one, is added if nothing else is.
extern "C" void product(const bf16* x, int64_t M, const Weights* weights, bf16* out, const bf16* plus, int64_t then,
                        int threads) {
    std::vector<int8_t> room(weights->scales == nullptr ? 0 : whole_room(M, weights->K));
#pragma omp parallel num_threads(threads)
    {
        Tiles tiles;
        team_product(*weights, {x, M, out, plus, Then(then)}, room.data(), nullptr);
    }
}
#endif
