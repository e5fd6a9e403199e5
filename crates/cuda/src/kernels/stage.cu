// Reads an input from pinned host memory with the multiprocessors: the copy engine may be full of weights.
extern "C" __global__ void __launch_bounds__(256) stage(const uint4* __restrict__ from, uint4* __restrict__ to,
        unsigned long long count) {
    for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) to[i] = from[i];
}

// As many as PIECES in staging.rs.
struct Pieces { const uint4* from[32]; };

// Puts rows of several requests, as many words each, one behind the other; blockIdx.y is the request.
extern "C" __global__ void __launch_bounds__(256) stage_rows(const __grid_constant__ Pieces pieces, uint4* __restrict__ to,
        unsigned long long count) {
    const uint4* __restrict__ from = pieces.from[blockIdx.y];
    to += blockIdx.y * count;
    for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull) to[i] = from[i];
}
