// Half or bfloat16 in memory, sums in single. See lower/attention.rs for the names defined before.
#define NAME_TEXT2(x) #x
#define NAME_TEXT(x) NAME_TEXT2(x)
__device__ __forceinline__ void NAME_mma(float* c, const unsigned* a, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME_TEXT(MMA) "." NAME_TEXT(MMA) ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ unsigned NAME_pair(T a, T b) { return (unsigned)a.bits | ((unsigned)b.bits << 16); }
__device__ __forceinline__ unsigned NAME_pack(float a, float b) { return NAME_pair(store<T>(a), store<T>(b)); }
extern "C" __global__ void __launch_bounds__(128) NAME(const T* __restrict__ q, const T* __restrict__ k,
        const T* __restrict__ v, MASK_PARAMETER T* __restrict__ out) {
    const int KP = D + 8, VP = 64 + 8;
    __shared__ __align__(16) unsigned char memory[(64 * (D + 8) + D * (64 + 8)) * 2 > 64 * D * 4 ? (64 * (D + 8) + D * (64 + 8)) * 2 : 64 * D * 4];
    T* ks = (T*)memory;
    T* vs = ks + 64 * KP;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int a = blockIdx.y / HEADS, h = blockIdx.y % HEADS, row = blockIdx.x * 16;
    const T* qp = q + a * QA + h * QH;
    const T* kp = k + a * KA + h * KH;
    const T* vp = v + a * VA + h * VH;
    const int r0 = min(row + g, ROWS - 1), r1 = min(row + g + 8, ROWS - 1);
    unsigned qa[D / 16][4];
    #pragma unroll
    for (int i = 0; i < D / 16; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
            const int d = i * 16 + j * 8 + 2 * t;
            qa[i][2 * j] = NAME_pair(qp[r0 * QR + d * QD], qp[r0 * QR + (d + 1) * QD]);
            qa[i][2 * j + 1] = NAME_pair(qp[r1 * QR + d * QD], qp[r1 * QR + (d + 1) * QD]);
        }
    }
    float o[D / 8][4];
    #pragma unroll
    for (int i = 0; i < D / 8; ++i) { o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.f; }
    float m0 = -INFINITE, m1 = -INFINITE, l0 = 0.f, l1 = 0.f;
    for (int base = 0; base < KEYS; base += 64) {
        __syncthreads();
        for (int i = threadIdx.x; i < 64 * (D / 8); i += 128) {
            const int key = i / (D / 8), d = (i % (D / 8)) * 8, from = base + key;
            #pragma unroll
            for (int j = 0; j < 8; ++j) {
                const bool inside = from < KEYS;
                T zero; zero.bits = 0;
                ks[key * KP + d + j] = inside ? kp[from * KR + (d + j) * KD] : zero;
                vs[(d + j) * VP + key] = inside ? vp[from * VR + (d + j) * VD] : zero;
            }
        }
        __syncthreads();
        float s[2][4];
        #pragma unroll
        for (int n = 0; n < 2; ++n) {
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.f;
            const T* kk = ks + (warp * 16 + n * 8 + g) * KP;
            #pragma unroll
            for (int i = 0; i < D / 16; ++i) {
                NAME_mma(s[n], qa[i], *(const unsigned*)(kk + i * 16 + 2 * t), *(const unsigned*)(kk + i * 16 + 8 + 2 * t));
            }
        }
        float n0 = m0, n1 = m1;
        #pragma unroll
        for (int n = 0; n < 2; ++n) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int key = base + warp * 16 + n * 8 + 2 * t + j;
                const bool inside = key < KEYS;
                s[n][j] = inside ? s[n][j] * SCALE + MASK(a, h, r0, key) : -INFINITE;
                s[n][2 + j] = inside ? s[n][2 + j] * SCALE + MASK(a, h, r1, key) : -INFINITE;
                n0 = fmaxf(n0, s[n][j]);
                n1 = fmaxf(n1, s[n][2 + j]);
            }
        }
        n0 = fmaxf(n0, __shfl_xor_sync(0xffffffffu, n0, 1)); n0 = fmaxf(n0, __shfl_xor_sync(0xffffffffu, n0, 2));
        n1 = fmaxf(n1, __shfl_xor_sync(0xffffffffu, n1, 1)); n1 = fmaxf(n1, __shfl_xor_sync(0xffffffffu, n1, 2));
        const float z0 = n0 == -INFINITE ? 0.f : n0, z1 = n1 == -INFINITE ? 0.f : n1;
        const float f0 = exp2f(m0 - z0), f1 = exp2f(m1 - z1);
        m0 = n0; m1 = n1;
        l0 *= f0; l1 *= f1;
        #pragma unroll
        for (int i = 0; i < D / 8; ++i) { o[i][0] *= f0; o[i][1] *= f0; o[i][2] *= f1; o[i][3] *= f1; }
        float p[2][4];
        #pragma unroll
        for (int n = 0; n < 2; ++n) {
            p[n][0] = exp2f(s[n][0] - z0); p[n][1] = exp2f(s[n][1] - z0);
            p[n][2] = exp2f(s[n][2] - z1); p[n][3] = exp2f(s[n][3] - z1);
            l0 += p[n][0] + p[n][1]; l1 += p[n][2] + p[n][3];
        }
        unsigned pa[4] = {NAME_pack(p[0][0], p[0][1]), NAME_pack(p[0][2], p[0][3]),
                          NAME_pack(p[1][0], p[1][1]), NAME_pack(p[1][2], p[1][3])};
        #pragma unroll
        for (int i = 0; i < D / 8; ++i) {
            const T* vv = vs + (i * 8 + g) * VP + warp * 16;
            NAME_mma(o[i], pa, *(const unsigned*)(vv + 2 * t), *(const unsigned*)(vv + 8 + 2 * t));
        }
    }
    l0 += __shfl_xor_sync(0xffffffffu, l0, 1); l0 += __shfl_xor_sync(0xffffffffu, l0, 2);
    l1 += __shfl_xor_sync(0xffffffffu, l1, 1); l1 += __shfl_xor_sync(0xffffffffu, l1, 2);
    // The warps' shares of the keys, joined.
    __shared__ float most[4][16], sums[4][16];
    __syncthreads();
    if (t == 0) { most[warp][g] = m0; most[warp][g + 8] = m1; sums[warp][g] = l0; sums[warp][g + 8] = l1; }
    float* os = (float*)memory;
    #pragma unroll
    for (int i = 0; i < D / 8; ++i) {
        os[(warp * 16 + g) * D + i * 8 + 2 * t] = o[i][0];
        os[(warp * 16 + g) * D + i * 8 + 2 * t + 1] = o[i][1];
        os[(warp * 16 + g + 8) * D + i * 8 + 2 * t] = o[i][2];
        os[(warp * 16 + g + 8) * D + i * 8 + 2 * t + 1] = o[i][3];
    }
    __syncthreads();
    T* op = out + a * OA + h * OH;
    for (int i = threadIdx.x; i < 16 * D; i += 128) {
        const int r = i / D, d = i % D;
        if (row + r >= ROWS) continue;
        const float top = fmaxf(fmaxf(most[0][r], most[1][r]), fmaxf(most[2][r], most[3][r]));
        const float z = top == -INFINITE ? 0.f : top;
        float sum = 0.f, value = 0.f;
        #pragma unroll
        for (int w = 0; w < 4; ++w) {
            const float f = exp2f(most[w][r] - z);
            sum += f * sums[w][r];
            value += f * os[(w * 16 + r) * D + d];
        }
        op[(row + r) * OR + d * OD] = store<T>(value / sum);
    }
}
