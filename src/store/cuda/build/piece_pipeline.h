// Encodes pieces of rows on a GPU, from memory of the host or of the GPU to memory of the host.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "store/build/piece_encoder.h"
#include "store/cuda/build/encode_kernels.h"

namespace narrowcast::store::cuda {

// Pieces pass through three stages in chunks, each on a stream of its own: the copy engine brings rows, kernels encode
// and place them, and the copy engine (slots) or a kernel (what is stored end to end) takes them to the host.
class PiecePipeline : public PieceEncoder {
 public:
  // For GPU `device`. Errors: CUDA_ERROR.
  static ncast_status create(int device, std::unique_ptr<PieceEncoder>* encoder);
  ~PiecePipeline() override;

  bool holds(const RowBlock& rows) const override;
  ncast_status copy_to_host(const RowBlock& rows, uint64_t row_bytes, uint8_t* to) override;
  ncast_status begin(const RowModel& model, const PayloadLayout& layout) override;
  uint64_t piece_rows() const override { return piece_rows_; }
  uint64_t piece_bytes() const override { return piece_rows_ * longest_bytes_; }
  ncast_status add_memory(uint8_t* memory, uint64_t bytes) override;
  ncast_status start(const RowBlock& rows, uint8_t* to) override;
  ncast_status release_rows() override;
  ncast_status finish(EncodedPiece* piece) override;

 private:
  // Of a piece; host memory.
  struct Result {
    uint32_t* units = nullptr;    // what was stored end to end
    uint32_t* numbers = nullptr;  // see PlaceArguments
    uint8_t* entries = nullptr;   // layout stride
    cudaEvent_t complete = nullptr;
  };
  static constexpr uint32_t result_count = 2;
  // Of a chunk.
  struct Buffers {
    char* rows = nullptr;    // copied from the host
    char* slots = nullptr;   // layout stride
    char* packed = nullptr;  // payloads end to end
    uint32_t* numbers = nullptr;
    PackedRun* run = nullptr;
    cudaEvent_t arrived = nullptr, encoded = nullptr, placed = nullptr, left = nullptr;
  };
  static constexpr uint32_t buffer_count = 3;

  explicit PiecePipeline(int device) : device_(device) {}
  cudaError_t create_streams();
  cudaError_t allocate(const Model& model);
  template <typename T>
  cudaError_t allocate(T** memory, uint64_t bytes);
  template <typename T>
  cudaError_t allocate_host(T** memory, uint64_t bytes);
  cudaError_t start_piece(const RowBlock& rows, uint8_t* to);
  // out: of the piece. first_row: in the piece.
  cudaError_t start_chunk(const RowBlock& rows, bool in_place, uint64_t first_row, const Result& result,
                          CopyOutArguments out, Buffers& buffers);
  ncast_status failed(cudaError_t error) const;

  int device_;
  uint32_t ctas_ = 0;
  cudaStream_t in_ = nullptr, work_ = nullptr, out_ = nullptr;
  Buffers buffers_[buffer_count];
  std::vector<void*> memory_, host_memory_, added_memory_;

  EncodeKernel kernel_ = {};
  EncodeArguments encode_ = {};  // without the rows
  PlaceArguments place_ = {};    // without the buffers
  uint64_t row_bytes_ = 0, row_alignment_ = 1, longest_bytes_ = 0, piece_rows_ = 0, chunk_rows_ = 0;
  Result results_[result_count];
  uint64_t pieces_ = 0, finished_pieces_ = 0;  // started; finished
  uint64_t chunks_ = 0;                        // started
  cudaEvent_t rows_read_ = nullptr;            // of the last chunk
};

}  // namespace narrowcast::store::cuda
