// Software prefetch into the second-level cache, a few lines at a time between steps of the current computation. The
// hardware prefetcher stops at page boundaries. Without software prefetch, the CPU would wait for memory at each of
// them.
#pragma once
#include "cpu_features.h"

#ifdef HAS_TILES
#include <immintrin.h>

#include <cstdint>

constexpr int LINE = 64;  // bytes of a cache line

struct Prefetch {
    static constexpr int STEP_LINES = 16;  // more than a core's fill buffers would stall it

    struct Range {
        const char* at = nullptr;
        int64_t stride = 0, count = 0;
    } ranges[2];        // `count` pieces each, `stride` bytes apart; one range after the other
    int64_t lines = 0;  // cache lines of one piece, a multiple of STEP_LINES

    // Prefetches the next STEP_LINES lines; does nothing when all ranges are done.
    void step() {
        while (which < 2 && ranges[which].count == 0) which++;
        if (which == 2) return;
        Range& range = ranges[which];
        for (int i = 0; i < STEP_LINES; i++, line++) _mm_prefetch(range.at + line * LINE, _MM_HINT_T1);
        if (line < lines) return;
        line = 0;
        range.at += range.stride;
        range.count--;
    }

  private:
    int64_t line = 0;
    int which = 0;
};
#endif
