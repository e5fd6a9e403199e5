// Half or bfloat16 in memory, sums in single. See lower/attention.rs for the names defined before.
//
// Warps are split over rows (WARP_ROWS of them) and keys (4 / WARP_ROWS): where few blocks fill the device, keys are
// split, else rows. Tiles of k and v stay as they lie in memory and are read as matrices.
#define NAME_TEXT2(x) #x
#define NAME_TEXT(x) NAME_TEXT2(x)
__device__ __forceinline__ void NAME_mma(float* c, const unsigned* a, unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." NAME_TEXT(MMA) "." NAME_TEXT(MMA) ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ unsigned NAME_pair(T a, T b) { return (unsigned)a.bits | ((unsigned)b.bits << 16); }
__device__ __forceinline__ unsigned NAME_pack(float a, float b) { return NAME_pair(store<T>(a), store<T>(b)); }
__device__ __forceinline__ unsigned NAME_shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void NAME_four(unsigned* r, const T* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(NAME_shared(p)));
}
__device__ __forceinline__ void NAME_four_turned(unsigned* r, const T* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(NAME_shared(p)));
}
// Brings a tile of 64 rows to shared memory; rows past the end are zeros.
template <long long ROW, long long STEP> __device__ __forceinline__ void NAME_tile(T* to, const T* from, int base) {
    for (int i = threadIdx.x; i < 64 * (D / 8); i += 128) {
        const int key = i / (D / 8), d = (i % (D / 8)) * 8, at = base + key;
        T* target = to + key * (D + 8) + d;
#if WIDE
        const int bytes = at < KEYS ? 16 : 0;
        const T* source = from + (at < KEYS ? at : 0) * ROW + d;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(NAME_shared(target)), "l"(source), "r"(bytes));
#else
        T zero; zero.bits = 0;
        #pragma unroll
        for (int j = 0; j < 8; ++j) target[j] = at < KEYS ? from[at * ROW + (d + j) * STEP] : zero;
#endif
    }
#if WIDE
    asm volatile("cp.async.commit_group;");
#endif
}
extern "C" __global__ void __launch_bounds__(128) NAME(const T* __restrict__ q, const T* __restrict__ k,
        const T* __restrict__ v, MASK_PARAMETER T* __restrict__ out) {
    const int PITCH = D + 8, SPLIT = 4 / WARP_ROWS, NT = 8 / SPLIT;
    __shared__ __align__(16) unsigned char memory[STAGES * 2 * 64 * (D + 8) * 2];
    T* tiles = (T*)memory;
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
    const int wr = warp % WARP_ROWS, wk = warp / WARP_ROWS;
    const int a = blockIdx.y / HEADS, h = blockIdx.y % HEADS, row = (blockIdx.x * WARP_ROWS + wr) * 16;
    const T* qp = q + a * QA + h * QH;
    const T* kp = k + a * KA + h * KH;
    const T* vp = v + a * VA + h * VH;
    const int r0 = min(row + g, ROWS - 1), r1 = min(row + g + 8, ROWS - 1);
    NAME_tile<KR, KD>(tiles, kp, 0);
    NAME_tile<VR, VD>(tiles + 64 * PITCH, vp, 0);
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
    for (int base = 0, stage = 0; base < KEYS; base += 64, stage = (stage + 1) % STAGES) {
        const int next = base + 64;
        if (STAGES == 2 && next < KEYS) {
            T* other = tiles + (stage ^ 1) * 2 * 64 * PITCH;
            NAME_tile<KR, KD>(other, kp, next);
            NAME_tile<VR, VD>(other + 64 * PITCH, vp, next);
#if WIDE
            asm volatile("cp.async.wait_group 2;");
#endif
        } else {
#if WIDE
            asm volatile("cp.async.wait_group 0;");
#endif
        }
        __syncthreads();
        const T* ks = tiles + stage * 2 * 64 * PITCH;
        const T* vs = ks + 64 * PITCH;
        const int first = wk * NT * 8;
        float s[NT][4];
        #pragma unroll
        for (int n = 0; n < NT; n += 2) {
            s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.f;
            s[n + 1][0] = s[n + 1][1] = s[n + 1][2] = s[n + 1][3] = 0.f;
            #pragma unroll
            for (int i = 0; i < D / 16; ++i) {
                // Rows: keys n and n + 8; columns: the two halves of sixteen.
                unsigned b[4];
                const int key = first + n * 8 + ((lane >> 4) << 3) + (lane & 7);
                NAME_four(b, ks + key * PITCH + i * 16 + ((lane >> 3) & 1) * 8);
                NAME_mma(s[n], qa[i], b[0], b[1]);
                NAME_mma(s[n + 1], qa[i], b[2], b[3]);
            }
        }
        float n0 = m0, n1 = m1;
        #pragma unroll
        for (int n = 0; n < NT; ++n) {
            #pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int key = base + first + n * 8 + 2 * t + j;
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
        #pragma unroll
        for (int n = 0; n < NT; n += 2) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                float* p = s[n + half];
                p[0] = exp2f(p[0] - z0); p[1] = exp2f(p[1] - z0);
                p[2] = exp2f(p[2] - z1); p[3] = exp2f(p[3] - z1);
                l0 += p[0] + p[1]; l1 += p[2] + p[3];
            }
            unsigned pa[4] = {NAME_pack(s[n][0], s[n][1]), NAME_pack(s[n][2], s[n][3]),
                              NAME_pack(s[n + 1][0], s[n + 1][1]), NAME_pack(s[n + 1][2], s[n + 1][3])};
            const T* vv = vs + (first + n * 8 + ((lane >> 3) & 1) * 8 + (lane & 7)) * PITCH + (lane >> 4) * 8;
            #pragma unroll
            for (int i = 0; i < D / 8; i += 2) {
                unsigned b[4];
                NAME_four_turned(b, vv + i * 8);
                NAME_mma(o[i], pa, b[0], b[1]);
                NAME_mma(o[i + 1], pa, b[2], b[3]);
            }
        }
        __syncthreads();
        if (STAGES == 1 && next < KEYS) {
            NAME_tile<KR, KD>(tiles, kp, next);
            NAME_tile<VR, VD>(tiles + 64 * PITCH, vp, next);
        }
    }
    l0 += __shfl_xor_sync(0xffffffffu, l0, 1); l0 += __shfl_xor_sync(0xffffffffu, l0, 2);
    l1 += __shfl_xor_sync(0xffffffffu, l1, 1); l1 += __shfl_xor_sync(0xffffffffu, l1, 2);
    T* op = out + a * OA + h * OH;
#if WARP_ROWS == 4
    #pragma unroll
    for (int i = 0; i < D / 8; ++i) {
        const int d = i * 8 + 2 * t;
        if (row + g < ROWS) {
            op[(row + g) * OR + d * OD] = store<T>(o[i][0] / l0);
            op[(row + g) * OR + (d + 1) * OD] = store<T>(o[i][1] / l0);
        }
        if (row + g + 8 < ROWS) {
            op[(row + g + 8) * OR + d * OD] = store<T>(o[i][2] / l1);
            op[(row + g + 8) * OR + (d + 1) * OD] = store<T>(o[i][3] / l1);
        }
    }
#else
    // The warps' shares of the keys, joined.
    __shared__ float most[4][16], sums[4][16];
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
    for (int i = threadIdx.x; i < WARP_ROWS * 16 * D; i += 128) {
        const int w0 = i / (16 * D), r = (i / D) % 16, d = i % D;
        const int at = (blockIdx.x * WARP_ROWS + w0) * 16 + r;
        if (at >= ROWS) continue;
        float top = -INFINITE;
        #pragma unroll
        for (int w = 0; w < SPLIT; ++w) top = fmaxf(top, most[w * WARP_ROWS + w0][r]);
        const float z = top == -INFINITE ? 0.f : top;
        float sum = 0.f, value = 0.f;
        #pragma unroll
        for (int w = 0; w < SPLIT; ++w) {
            const int from = w * WARP_ROWS + w0;
            const float f = exp2f(most[from][r] - z);
            sum += f * sums[from][r];
            value += f * os[(from * 16 + r) * D + d];
        }
        op[at * OR + d * OD] = store<T>(value / sum);
    }
#endif
}
