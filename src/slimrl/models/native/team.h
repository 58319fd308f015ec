// Parts of kernels that all threads of an OpenMP team compute together. Every thread of the team must make the call,
// with `Tiles` in scope. Each call ends with a barrier.
#pragma once
#include <omp.h>

#include <atomic>
#include <vector>

#include "tiles.h"

#ifdef HAS_TILES
// The weights of a linear layer in the order of `pack` in `products.cpp`.
struct Weights {
    const bf16 *packed, *bias;  // `bias` may be null
    int64_t K, N;
};

int64_t panel_bytes(const Weights& weights);

// Returns the first panel that the calling thread computes with; null if `weights` is null.
const char* first_panel(const Weights* weights);

// The operation on a product's results before they are stored. `None` adds only a bias, if there is one. `Add` adds a
// residual. `Gate` computes silu(gate) up.
enum class Epilogue { None, Add, Gate };

// The inputs x (M, K) of a product, its epilogue, and where the result goes: see `product`.
struct Rows {
    const bf16* x;
    int64_t M;
    bf16* out;
    const bf16* plus;
    Epilogue epilogue;
};

// `next` are the weights that the team needs after this product. They are prefetched. `next` may be null.
void team_product(const Weights& weights, const Rows& rows, const Weights* next);

// One layer's keys and values: (slots, capacity, H_kv * D) each, in the order described in `attention.cpp`.
struct Cache {
    bf16 *keys, *values;
    int64_t capacity, H_kv, D;
};

// New tokens of one sequence, as `attend` gets them.
struct Span {
    int32_t slot, first_row, count, start;
};

// One new token: its row, and its place in the cache.
struct Token {
    int64_t row, slot, position;
};

std::vector<Token> tokens_of(const Span* spans, int64_t num_spans);

void store_token(const Cache& cache, const Token& token, const bf16* key, const bf16* value);

// A work item: consecutive tokens of one sequence and the query heads that share a key head. Row r is query head r %
// share of token r / share, counted from the span's first token.
struct Item {
    Span span;
    int head, begin, end;
};

std::vector<Item> items_of(const Span* spans, int64_t num_spans, int64_t H, int64_t H_kv);

struct Queries {
    const bf16* rows;  // (T, H, D), `stride` numbers apart
    int64_t stride, H;
    float scale;
    int64_t window;  // the number of latest positions that a query attends to; 0 means all
};

// Threads claim one item after another with the shared counter `claimed`, which must be 0 before the call. `next` is as
// in `team_product`.
void team_attend(const Cache& cache, const std::vector<Item>& items, const Queries& queries, bf16* out,
                 std::atomic<size_t>& claimed, const Weights* next);
#endif
