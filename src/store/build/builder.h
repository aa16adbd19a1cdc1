// Builds a table file from rows that arrive block by block.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "narrowcast/codec.h"
#include "narrowcast/store.h"
#include "store/build/payload_joiner.h"
#include "store/build/piece_encoder.h"
#include "store/build/row_block.h"
#include "store/file/writer.h"
#include "store/rows/fit.h"
#include "threads/parallel.h"

namespace narrowcast::store {

// The function that messages name.
inline constexpr const char* builder_function = "ncast_store_builder";

struct BuildOptions {
  ncast_dtype dtype = NCAST_UINT8;
  ncast_store_layout layout = NCAST_STORE_AUTO_LAYOUT;
  std::vector<uint64_t> row_shape;
  uint64_t capacity = 0;
  int64_t spare = -1;
  uint64_t rows = 0;
  std::string codec = "auto";
  std::string metadata;
  int threads = 0;
};

// The codec and the layout of a table.
struct TablePlan {
  file::Header header = {};               // without sections
  std::shared_ptr<const RowModel> model;  // layouts stride and packed
  ncast_codec codec = 0;                  // layout blocks
  std::string codec_text;
  std::string layout_reason;
  std::string fit;  // JSON: how the codec was chosen
};

// Chooses codec and layout for sample rows, at least one. Errors: INVALID_ARGUMENT, UNSUPPORTED.
ncast_status plan_table(const BuildOptions& options, const RowBlock& sample, TablePlan* plan);

class Builder {
 public:
  Builder(int file, BuildOptions options) : options_(std::move(options)), writer_(file) {}

  // Has rows encoded by `encoder`, except for the layout blocks and the coder raw. Before the first rows, and once.
  ncast_status encode_with(std::unique_ptr<PieceEncoder> encoder);
  ncast_status sample(const RowBlock& rows);
  ncast_status add(const RowBlock& rows);
  ncast_status finish(std::string* report);

  uint64_t row_bytes() const;

 private:
  // Payloads that are longer than a slot.
  struct Overflow {
    std::vector<uint64_t> rows;
    std::span<const uint8_t> entries;  // with zeros behind the payloads; in own_entries, or elsewhere
    std::vector<uint8_t> own_entries;

    void add(uint64_t row, const uint8_t* payload, uint64_t bytes, uint64_t entry_stride);
  };
  // Encoded rows, of which the writer takes full segments.
  struct Piece {
    std::unique_ptr<uint8_t[]> bytes;
    file::DataRun run;
    std::vector<Overflow> overflows;  // layout stride
    std::span<const uint32_t> ends;   // layout packed: of payloads, in units of the table; in own_ends, or elsewhere
    std::vector<uint32_t> own_ends;
  };

  ncast_status begin(const RowBlock& sample);
  // Whether encoder_ encodes the table.
  bool is_encoded_elsewhere() const;
  ncast_status add_parts(const RowBlock& rows);
  ncast_status add_part(const RowBlock& rows);
  ncast_status encode_elsewhere(const RowBlock& rows);
  ncast_status end_started_piece();
  ncast_status end_payloads(uint64_t units, std::span<const uint32_t> ends);
  ncast_status add_slots(const RowBlock& rows);
  ncast_status add_payloads(const RowBlock& rows);
  ncast_status redirect(Overflow overflow, uint64_t first);
  uint64_t piece_rows() const;
  // Calls encode(task) for all tasks on several threads, while others write the piece before. Each thread has its own
  // encode, which begin() returns.
  template <typename Begin>
  ncast_status encode_and_write(uint64_t tasks, Begin begin);
  ncast_status append_waiting();
  ncast_status write_waiting_piece();
  void end_piece(uint64_t bytes);
  ncast_status add_values(const RowBlock& rows, bool last);
  ncast_status failed(ncast_status status);

  BuildOptions options_;
  file::Writer writer_;
  TablePlan plan_;
  bool begun_ = false, finished_ = false, failed_ = false;
  uint64_t rows_ = 0;
  Piece encoded_, waiting_piece_;  // being encoded; being written
  uint64_t started_rows_ = 0;      // of encoded_, while encoder_ encodes them
  PayloadJoiner joiner_;           // layout packed
  uint64_t units_ = 0;             // layout packed: the end of the last payload
  std::vector<uint8_t> waiting_;   // layout blocks: values that do not fill a frame yet
  uint64_t frames_end_ = 0;        // layout blocks: bytes of the frames
  // Destroyed before the pieces, which it may be using.
  std::unique_ptr<PieceEncoder> encoder_;
  std::unique_ptr<threads::Team> team_;  // from begin() on
};

}  // namespace narrowcast::store
