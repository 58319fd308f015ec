// Implements the OpenMP functions that clang's code calls with functions of GNU's libgomp, which PyTorch has loaded.
// Only ziglang compiles this file, because ziglang has no OpenMP library. A second OpenMP library would compete with
// PyTorch's for the cores.
//
// It supports only the OpenMP features that these kernels use: no nested teams, no reductions over a team, and only
// loops in steps of one, with the default static schedule or a dynamic schedule. Signatures: LLVM's
// `openmp/runtime/src/kmp.h`, GCC's `libgomp/libgomp_g.h`.
#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

extern "C" {
int omp_get_num_threads();
int omp_get_thread_num();
void GOMP_parallel(void (*run)(void*), void* region, unsigned num_threads, unsigned flags);
void GOMP_barrier();
bool GOMP_loop_dynamic_start(long begin, long end, long step, long chunk, long* first, long* last);
bool GOMP_loop_dynamic_next(long* first, long* last);
void GOMP_loop_end_nowait();
}

// clang's code calls these two constructors when it refuses a vector that is too long. GNU's C++ library, which PyTorch
// has loaded, has them inline only.
namespace std {
bad_alloc::bad_alloc() noexcept {}
bad_array_new_length::bad_array_new_length() noexcept {}
}  // namespace std

namespace {
constexpr size_t MOST_ARGUMENTS = 32;

// The body of a parallel region, and pointers to the variables that it uses. A body ignores additional arguments.
struct Region {
    void (*body)(int* thread, int* bound, ...);
    void* arguments[MOST_ARGUMENTS];
};

// A dynamic loop over begin ... end - 1. `is_new` is true until this thread has claimed a piece of the loop.
struct Loop {
    long begin, end, chunk;
    bool is_new;
};

thread_local unsigned wanted_threads = 0;  // threads of the next region; 0 means the default number
thread_local Loop loop;

template <size_t... I>
void call(const Region& region, std::index_sequence<I...>) {
    int thread = omp_get_thread_num(), bound = 0;
    using Body = void (*)(int*, int*, decltype((void)I, (void*)nullptr)...);
    reinterpret_cast<Body>(region.body)(&thread, &bound, region.arguments[I]...);
}

void run(void* region) { call(*static_cast<Region*>(region), std::make_index_sequence<MOST_ARGUMENTS>()); }

// Narrow the inclusive bounds to the calling thread's share: if the count is not divisible, the first threads get one
// more.
template <typename T>
void take_share(int32_t* is_last, T* lower, T* upper) {
    const T num = omp_get_num_threads(), thread = omp_get_thread_num();
    const T count = *upper - *lower + 1, share = count / num, more = count % num;
    *lower += thread * share + std::min(thread, more);
    *upper = *lower + share + (thread < more) - 1;
    *is_last = thread == num - 1;
}

// Claim a piece of the loop, with inclusive bounds. Returns false if none is left.
template <typename T>
bool claim(int32_t* is_last, T* lower, T* upper) {
    long first, last;
    const bool found = std::exchange(loop.is_new, false)
                           ? GOMP_loop_dynamic_start(loop.begin, loop.end, 1, loop.chunk, &first, &last)
                           : GOMP_loop_dynamic_next(&first, &last);
    if (!found) {
        GOMP_loop_end_nowait();
        return false;
    }
    *lower = first;
    *upper = last - 1;
    *is_last = last == loop.end;
    return true;
}
}  // namespace

extern "C" {
void __kmpc_push_num_threads(void*, int32_t, int32_t num_threads) { wanted_threads = num_threads; }

void __kmpc_fork_call(void*, int32_t num, void (*body)(int*, int*, ...), ...) {
    if (size_t(num) > MOST_ARGUMENTS) std::abort();
    Region region = {body, {}};
    va_list arguments;
    va_start(arguments, body);
    for (int32_t i = 0; i < num; i++) region.arguments[i] = va_arg(arguments, void*);
    va_end(arguments);
    GOMP_parallel(run, &region, std::exchange(wanted_threads, 0), 0);
}

// A region whose `if` is false runs in the calling thread alone, so no team is started.
void __kmpc_serialized_parallel(void*, int32_t) { wanted_threads = 0; }
void __kmpc_end_serialized_parallel(void*, int32_t) {}

int32_t __kmpc_global_thread_num(void*) { return omp_get_thread_num(); }
void __kmpc_barrier(void*, int32_t) { GOMP_barrier(); }

void __kmpc_for_static_init_4(void*, int32_t, int32_t, int32_t* is_last, int32_t* lower, int32_t* upper, int32_t*,
                              int32_t, int32_t) {
    take_share(is_last, lower, upper);
}
void __kmpc_for_static_init_8(void*, int32_t, int32_t, int32_t* is_last, int64_t* lower, int64_t* upper, int64_t*,
                              int64_t, int64_t) {
    take_share(is_last, lower, upper);
}
void __kmpc_for_static_init_8u(void*, int32_t, int32_t, int32_t* is_last, uint64_t* lower, uint64_t* upper, int64_t*,
                               int64_t, int64_t) {
    take_share(is_last, lower, upper);
}
void __kmpc_for_static_fini(void*, int32_t) {}

void __kmpc_dispatch_init_8(void*, int32_t, int32_t, int64_t lower, int64_t upper, int64_t, int64_t chunk) {
    loop = {long(lower), long(upper) + 1, long(chunk), true};
}
void __kmpc_dispatch_init_8u(void*, int32_t, int32_t, uint64_t lower, uint64_t upper, int64_t, int64_t chunk) {
    loop = {long(lower), long(upper) + 1, long(chunk), true};
}
int __kmpc_dispatch_next_8(void*, int32_t, int32_t* is_last, int64_t* lower, int64_t* upper, int64_t*) {
    return claim(is_last, lower, upper);
}
int __kmpc_dispatch_next_8u(void*, int32_t, int32_t* is_last, uint64_t* lower, uint64_t* upper, int64_t*) {
    return claim(is_last, lower, upper);
}
void __kmpc_dispatch_deinit(void*, int32_t) {}
}
