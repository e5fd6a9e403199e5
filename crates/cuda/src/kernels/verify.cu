// Convolutions checked: operands filled with numbers that depend on their place only, and some elements of the result
// computed anew, one after the other. T is the element type.

__device__ __forceinline__ unsigned mixed(unsigned long long at) {
    unsigned h = (unsigned)at ^ (unsigned)(at >> 32) * 0x9e3779b9u;
    h ^= h >> 16; h *= 0x7feb352du; h ^= h >> 15; h *= 0x846ca68bu; h ^= h >> 16;
    return h;
}

extern "C" __global__ void __launch_bounds__(256) fill(T* __restrict__ to, unsigned long long count) {
    for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < count; i += gridDim.x * 256ull)
        to[i] = store<T>((mixed(i) >> 8) * (2.f / 16777216.f) - 1.f);
}

// As Shape in verify.rs. Dimensions are n, c, h, w; strides are in elements; w lies as output, window, input.
struct Shape {
    long long xs[4], ys[4], rs[4];
    int x[4], w[4], y[4];
    int stride[2], dilation[2], before[2];
    int groups, activation, bias, residual;
    float most;
    int unused;
};

// A block an element: the square of what the result is off, and of what it should be.
extern "C" __global__ void __launch_bounds__(128) verify(const __grid_constant__ Shape s, const T* __restrict__ x,
        const T* __restrict__ w, const T* __restrict__ bias, const T* __restrict__ residual, const T* __restrict__ y,
        float* __restrict__ out) {
    const unsigned long long all = (unsigned long long)s.y[0] * s.y[1] * s.y[2] * s.y[3];
    unsigned long long at = (((unsigned long long)mixed(blockIdx.x) << 20) + mixed(blockIdx.x + 7919u)) % all;
    const int column = at % s.y[3]; at /= s.y[3];
    const int row = at % s.y[2]; at /= s.y[2];
    const int o = at % s.y[1], n = at / s.y[1];
    const int inputs = s.w[1], group = o / (s.y[1] / s.groups);
    const int terms = inputs * s.w[2] * s.w[3];
    double sum = 0.0;
    for (int term = threadIdx.x; term < terms; term += 128) {
        const int i = term % inputs, place = term / inputs, kx = place % s.w[3], ky = place / s.w[3];
        const int r = row * s.stride[0] - s.before[0] + ky * s.dilation[0];
        const int c = column * s.stride[1] - s.before[1] + kx * s.dilation[1];
        if (r < 0 || c < 0 || r >= s.x[2] || c >= s.x[3]) continue;
        const long long from = n * s.xs[0] + (long long)(group * inputs + i) * s.xs[1] + r * s.xs[2] + c * s.xs[3];
        sum += (double)load(x[from]) * (double)load(w[(long long)o * terms + term]);
    }
    __shared__ double sums[128];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    double value = 0.0;
    for (int i = 0; i < 128; ++i) value += sums[i];
    if (s.bias) value += (double)load(bias[o]);
    if (s.residual)
        value += (double)load(residual[n * s.rs[0] + o * s.rs[1] + row * s.rs[2] + column * s.rs[3]]);
    float v = (float)value;
    if (s.activation == 1) v = v < 0.f ? 0.f : v;
    if (s.activation == 2) v = v < 0.f ? 0.f : (v > s.most ? s.most : v);
    if (s.activation == 3) v = 0.5f * v * (1.f + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v)));
    const float off = load(y[n * s.ys[0] + o * s.ys[1] + row * s.ys[2] + column * s.ys[3]]) - v;
    out[2 * blockIdx.x] = off * off;
    out[2 * blockIdx.x + 1] = v * v;
}
