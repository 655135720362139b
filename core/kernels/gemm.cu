// A matrix product by the multiprocessors' own arithmetic: work that a program does while others communicate.

extern "C" {

// product = left x right, square matrices of float32 by rows, `side` a multiple of 64. Blocks of 256 threads take tiles
// of 64 x 64 in turn, so that any grid does.
__global__ void __launch_bounds__(256)
    lg_gemm(float* product, const float* left, const float* right, unsigned long long side) {
  using namespace linkgauge;
  constexpr unsigned kTile = 64;
  constexpr unsigned kDepth = 16;
  constexpr unsigned kPart = 4;  // a thread's part of a tile: 4 x 4
  constexpr unsigned kThreads = 256;
  __shared__ float left_tile[kDepth][kTile + 1];  // by columns; the odd width keeps banks apart
  __shared__ float right_tile[kDepth][kTile];
  const unsigned row = threadIdx.x / (kTile / kPart) * kPart;
  const unsigned column = threadIdx.x % (kTile / kPart) * kPart;
  const u64 tiles = side / kTile;
  for (u64 tile = blockIdx.x; tile < tiles * tiles; tile += gridDim.x) {
    const u64 top = tile / tiles * kTile;
    const u64 first = tile % tiles * kTile;
    float sums[kPart][kPart] = {};
    for (u64 depth = 0; depth < side; depth += kDepth) {
      for (unsigned i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
        left_tile[i % kDepth][i / kDepth] = left[(top + i / kDepth) * side + depth + i % kDepth];
        right_tile[i / kTile][i % kTile] = right[(depth + i / kTile) * side + first + i % kTile];
      }
      __syncthreads();
#pragma unroll
      for (unsigned k = 0; k < kDepth; ++k) {
        float from_left[kPart];
        float from_right[kPart];
#pragma unroll
        for (unsigned i = 0; i < kPart; ++i) {
          from_left[i] = left_tile[k][row + i];
          from_right[i] = right_tile[k][column + i];
        }
#pragma unroll
        for (unsigned i = 0; i < kPart; ++i) {
#pragma unroll
          for (unsigned j = 0; j < kPart; ++j) sums[i][j] += from_left[i] * from_right[j];
        }
      }
      __syncthreads();
    }
    for (unsigned i = 0; i < kPart; ++i) {
      for (unsigned j = 0; j < kPart; ++j) product[(top + row + i) * side + first + column + j] = sums[i][j];
    }
  }
}

}  // extern "C"
