// Memory that is read next, fetched into the second-level cache while something else is computed. By itself the
// processor looks ahead within a page only, and computing and waiting for memory would take turns.
#pragma once
#include "unit.h"

#ifdef HAS_TILES
#include <immintrin.h>

#include <cstdint>

constexpr int LINE = 64;  // bytes of a line of the cache

struct Ahead {
    static constexpr int SOME = 16;  // lines at once: more than a core can wait for would hold up what is computed

    struct Pieces {
        const char* at = nullptr;
        int64_t stride = 0, count = 0;
    } pieces[2];        // fetched one after the other
    int64_t lines = 0;  // of a piece, a multiple of SOME

    void some() {
        while (which < 2 && pieces[which].count == 0) which++;
        if (which == 2) return;
        Pieces& now = pieces[which];
        for (int i = 0; i < SOME; i++, line++) _mm_prefetch(now.at + line * LINE, _MM_HINT_T1);
        if (line < lines) return;
        line = 0;
        now.at += now.stride;
        now.count--;
    }

  private:
    int64_t line = 0;
    int which = 0;
};
#endif
