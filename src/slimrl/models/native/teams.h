// Work that all threads of an OpenMP team share, of which kernels are made. Every thread of the team makes the call,
// while it has `Tiles`; when one returns, all have finished.
#pragma once
#include <atomic>
#include <vector>

#include "tiles.h"

#ifdef HAS_TILES
// The weights of a linear layer in the order of `pack` in `products.cpp`.
struct Weights {
    const void* packed;   // bf16, or int8_t if there are scales
    const float* scales;  // one for each output of the panels, or null
    const bf16* bias;     // or null
    int64_t K, N;
};

int64_t panel_bytes(const Weights& weights);

// Of the panels of weights that the calling thread computes with, the first; null of no weights.
const char* first_panel(const Weights* weights);

enum Then { NOTHING, ADD, GATE };  // what happens to a product: as in `product`

// The rows x (M, K), what they become, and where that goes: see `product`.
struct Rows {
    const bf16* x;
    int64_t M;
    bf16* out;
    const bf16* plus;
    Then then;
};

// How many bytes of `room`, which the team shares, M rows of K numbers take where the weights have scales.
int64_t whole_room(int64_t M, int64_t K);

// `next` are the weights that the team needs next, or null.
void team_product(const Weights& weights, const Rows& rows, int8_t* room, const Weights* next);

// One layer's keys and values: (slots, capacity, H_kv * D) each, in the order described in `attention.cpp`.
struct Cache {
    bf16 *keys, *values;
    int64_t capacity, H_kv, D;
};

// New tokens of one sequence, as `attend` gets them.
struct Span {
    int32_t slot, first_row, count, start;
};

// One of them: its row, and its place in the cache.
struct Token {
    int64_t row, slot, position;
};

std::vector<Token> tokens_of(const Span* spans, int64_t num_spans);

void store_token(const Cache& cache, const Token& token, const bf16* key, const bf16* value);

// Rows of one sequence: query heads that share a key head, of consecutive tokens. Row r is the head r % share of the
// token r / share, counted from the first of the span.
struct Item {
    Span span;
    int head, begin, end;
};

std::vector<Item> items_of(const Span* spans, int64_t num_spans, int64_t H, int64_t H_kv);

struct Queries {
    const bf16* rows;  // (T, H, D), `stride` numbers apart
    int64_t stride, H;
    float scale;
    int64_t window;  // how many positions they look back; 0 means all
};

// Threads take one item after the other: `taken`, which the team shares, is 0 before. `next` is as in `team_product`.
void team_attend(const Cache& cache, const std::vector<Item>& items, const Queries& queries, bf16* out,
                 std::atomic<size_t>& taken, const Weights* next);
#endif
