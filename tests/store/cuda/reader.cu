// Readers on a GPU, against the rows of the table.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "narrowcast/narrowcast.h"
#include "store/cuda/gather_table.h"
#include "store/cuda/reader.h"
#include "store/cuda/sample_tables.h"

namespace narrowcast::store::cuda::test {
namespace {

#define CHECK_CUDA(call) REQUIRE_MESSAGE((call) == cudaSuccess, cudaGetErrorString(cudaGetLastError()))
#define CHECK_OK(call) REQUIRE_MESSAGE((call) == NCAST_OK, ncast_last_error())

// Few rows, because compute-sanitizer is slow.
bool is_reduced() { return std::getenv("NARROWCAST_TEST_REDUCED") != nullptr; }

class Registered {
 public:
  Registered(void* memory, size_t bytes) : memory_(memory) {
    CHECK_CUDA(cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable));
  }
  ~Registered() { cudaHostUnregister(memory_); }

 private:
  void* memory_;
};
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) { CHECK_CUDA(cudaMalloc(&data_, count * sizeof(T))); }
  ~DeviceArray() { cudaFree(data_); }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
};

// A table in registered memory, whose reader announces its calls.
class Fixture {
 public:
  // capacity: rows that are reserved; 0: none.
  Fixture(const Model& model, const std::vector<Bytes>& samples, size_t count, bool is_packed, uint64_t capacity = 0)
      : model_(std::make_shared<Model>(model)), random_(29), table_(make(samples, count, is_packed)) {
    auto* const words = reinterpret_cast<uint64_t*>(words_.at());
    words[0] = table_.rows.size();
    words[3] = table_.entry_count != 0 ? 1 : 0;
    for (Pages* pages : {&words_, &table_.slots, &table_.entries, &table_.headers})
      registered_.push_back(std::make_unique<Registered>(pages->at(), pages->bytes()));
    ReaderTable view = {};
    view.model = model_.get();
    view.slots = reinterpret_cast<const uint8_t*>(table_.slots.at());
    view.stride = table_.stride;
    view.offsets = is_packed ? table_.offsets.data() : nullptr;
    view.unit_bytes = table_.unit;
    view.headers = table_.is_coded ? nullptr : reinterpret_cast<const uint32_t*>(table_.headers.at());
    view.entries = reinterpret_cast<const uint8_t*>(table_.entries.at());
    view.entry_stride = table_.entry_stride;
    view.entry_count = table_.entry_count;
    view.typical_bytes = table_.slot_bytes();
    view.rows = table_.rows.size();
    view.capacity = std::max(capacity, view.rows);
    view.row_count = &words[0];
    view.redirects = table_.is_coded ? nullptr : reinterpret_cast<const uint32_t*>(&words[3]);
    view.started = &words[1];
    view.finished = &words[2];
    CHECK_OK(Reader::create(view, {10000, 0}, &reader_));
    CHECK_CUDA(cudaStreamCreate(&stream_));
  }
  ~Fixture() {
    reader_.reset();
    cudaStreamDestroy(stream_);
  }

  uint64_t rows() const { return table_.rows.size(); }
  uint64_t row_bytes() const { return model_->shape.row_bytes(); }
  Reader& reader() { return *reader_; }
  cudaStream_t stream() const { return stream_; }
  RowTarget target(void* out, uint64_t stride) const { return {out, stride, 0, stream_}; }
  uint64_t calls_started() { return word(1); }
  uint64_t calls_ended() { return word(2); }

  // Compares rows in device memory with those of the table.
  void check(const char* out, const std::vector<int64_t>& indices, uint64_t out_stride) {
    CHECK_CUDA(cudaStreamSynchronize(stream_));
    std::vector<char> host(out_stride * indices.size());
    CHECK_CUDA(cudaMemcpy(host.data(), out, host.size(), cudaMemcpyDeviceToHost));
    const Bytes zeros(row_bytes());
    size_t wrong = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      const bool exists = indices[i] >= 0 && static_cast<uint64_t>(indices[i]) < rows();
      const Bytes& expected = exists ? table_.rows[static_cast<size_t>(indices[i])] : zeros;
      wrong += std::memcmp(&host[i * out_stride], expected.data(), row_bytes()) != 0;
    }
    CHECK(wrong == 0);
  }
  void check_fetch(uint64_t first, uint64_t count, int64_t step) {
    DeviceArray<char> out(count * row_bytes());
    CHECK_CUDA(cudaMemset(out.data(), 0xee, count * row_bytes()));
    CHECK_OK(reader_->fetch(first, count, step, rows(), target(out.data(), row_bytes())));
    std::vector<int64_t> indices;
    for (uint64_t i = 0; i < count; ++i)
      indices.push_back(static_cast<int64_t>(first) + static_cast<int64_t>(i) * step);
    check(out.data(), indices, row_bytes());
  }

 private:
  Table make(const std::vector<Bytes>& samples, size_t count, bool is_packed) {
    const std::vector<Bytes> encoded_samples = encoded(model_, samples);
    std::vector<Bytes> rows, payloads;
    std::vector<size_t> sizes;
    for (size_t i = 0; i < count; ++i) {
      const size_t sample = random_() % samples.size();
      rows.push_back(samples[sample]);
      payloads.push_back(encoded_samples[sample]);
      sizes.push_back(payloads.back().size());
    }
    std::ranges::sort(sizes);
    const bool is_coded = model_->coder != Coder::RAW;
    const uint64_t stride = is_coded ? (sizes[sizes.size() * 9 / 10] + 31) / 32 * 32 : row_bytes();
    return {rows, payloads, is_coded, is_packed ? 0 : stride, 16, count / 50, random_};
  }
  uint64_t word(size_t number) { return reinterpret_cast<volatile uint64_t*>(words_.at())[number]; }

  std::shared_ptr<const Model> model_;
  std::mt19937_64 random_;
  Table table_;
  Pages words_ = Pages(32);  // rows, started, finished, redirects
  std::vector<std::unique_ptr<Registered>> registered_;
  std::unique_ptr<Reader> reader_;
  cudaStream_t stream_ = nullptr;
};

struct Sample {
  std::string name;
  Model model;
  Fill fill;
};
std::vector<Sample> bfloat16_samples() {
  std::vector<Sample> all;
  for (const uint64_t elems : {20u, 32u, 64u, 256u, 1031u, 20000u})
    all.push_back({"bfloat16", window_model(NCAST_BFLOAT16, elems, {}, false), floats(NCAST_BFLOAT16, {})});
  all.push_back({"near bfloat16", window_model(NCAST_BFLOAT16, 32, {}, false), near_floats(NCAST_BFLOAT16)});
  return all;
}

std::vector<Sample> float_samples() {
  const Trim eight{8, 0, 0x81, 0}, sixteen{16, 0, 0, 0}, three{3, 0, 5, 0};
  std::vector<Sample> all = {
      {"float32", window_model(NCAST_FLOAT32, 384, {}, false), floats(NCAST_FLOAT32, {})},
      {"trimmed float32", window_model(NCAST_FLOAT32, 128, eight, false), floats(NCAST_FLOAT32, eight)},
      {"sparse float32", window_model(NCAST_FLOAT32, 1433, sixteen, true), sparse(floats(NCAST_FLOAT32, sixteen), 20)},
      {"float16", window_model(NCAST_FLOAT16, 300, {}, false), floats(NCAST_FLOAT16, {})},
      {"trimmed float16", window_model(NCAST_FLOAT16, 300, three, false), floats(NCAST_FLOAT16, three)},
      {"float64", window_model(NCAST_FLOAT64, 1100, {}, false), floats(NCAST_FLOAT64, {})}};
  for (const ncast_dtype dtype : {NCAST_FLOAT8_E4M3, NCAST_FLOAT8_E5M2})
    all.push_back({"float8", window_model(dtype, 1056, {}, false), floats(dtype, {})});
  return all;
}

void check_sample(const std::string& name, const Model& model, std::vector<Bytes> rows, bool is_packed) {
  CAPTURE(name);
  CAPTURE(is_packed);
  std::mt19937_64 random(31);
  make_random(rows[5], random);
  const uint64_t count = is_reduced() ? 400 : std::max<uint64_t>(3000, 4000000 / model.shape.row_bytes());
  const uint64_t gathered = is_reduced() ? 600 : 4000;
  Fixture table(model, rows, count, is_packed);
  std::vector<int64_t> indices = {-1, static_cast<int64_t>(table.rows()), 2000000000, -2000000000};
  for (uint64_t i = 0; i < gathered; ++i) indices.push_back(static_cast<int64_t>(random() % table.rows()));
  std::ranges::shuffle(indices, random);
  const std::vector<int32_t> narrow(indices.begin(), indices.end());
  DeviceArray<int64_t> wide_on_device(indices.size());
  DeviceArray<int32_t> narrow_on_device(indices.size());
  CHECK_CUDA(cudaMemcpy(wide_on_device.data(), indices.data(), indices.size() * 8, cudaMemcpyHostToDevice));
  CHECK_CUDA(cudaMemcpy(narrow_on_device.data(), narrow.data(), narrow.size() * 4, cudaMemcpyHostToDevice));

  const uint64_t gap = 3 * ncast_dtype_bytes(model.shape.dtype), stride = table.row_bytes() + gap;
  DeviceArray<char> out(stride * indices.size());
  CHECK_OK(table.reader().gather({wide_on_device.data(), 8, indices.size(), false, false}, table.rows(),
                                 table.target(out.data(), table.row_bytes())));
  table.check(out.data(), indices, table.row_bytes());
  CHECK_OK(table.reader().gather({narrow_on_device.data(), 4, indices.size(), false, false}, table.rows(),
                                 table.target(out.data(), stride)));
  table.check(out.data(), indices, stride);
  table.check_fetch(1, table.rows() - 1, 1);
  table.check_fetch(7, 100, 3);
  table.check_fetch(99, 100, -1);

  GatherCounters counters = {};
  CHECK_OK(table.reader().counters("counters", &counters, table.stream()));
  CHECK(counters.bad_indices == 8);
  CHECK(counters.corrupt_rows == 0);
  CHECK(counters.rows == 2 * gathered + table.rows() - 1 + 200);
  CHECK(table.calls_started() == 5);
  CHECK(table.calls_ended() == 5);
}

void check_samples(const std::vector<Sample>& samples) {
  std::mt19937_64 random(37);
  for (const bool is_packed : {false, true})
    for (const auto& [name, model, fill] : samples)
      if (!is_packed || model.coder != Coder::RAW)
        check_sample(name, model, rows_of(model.shape, 60, fill, random), is_packed);
}

// A case for each kind of kernels, so that sanitizers, under which they take minutes, can run side by side.
TEST_CASE("readers gather and fetch rows of bfloat16") { check_samples(bfloat16_samples()); }

TEST_CASE("readers gather and fetch rows of other floating-point types") { check_samples(float_samples()); }

TEST_CASE("readers gather and fetch rows of integers") {
  const Model model = plain_model(NCAST_INT64, 500, {0, 50, 0, 0}, true);
  check_samples({{"integers", model, sparse(trimmed(model), 9)}});
}

TEST_CASE("readers gather and fetch uncoded rows") {
  const Fill any = [](std::mt19937_64& random) { return random(); };
  for (const uint64_t bytes : {1u, 31u, 64u, 512u, 5732u}) check_samples({{"raw", raw_model(NCAST_INT8, bytes), any}});
}

TEST_CASE("readers gather and fetch rows without their invariant bits") {
  std::mt19937_64 random(37);
  for (const bool is_packed : {false, true})
    for (const uint32_t chunk : {1u, 2u, 4u, 8u}) {
      const Model model = invariant_model(1000, chunk, 5, random);
      check_sample("invariant", model, invariant_rows(model, 60, random), is_packed);
    }
}

TEST_CASE("readers gather and fetch rows with stages and invariant bits") {
  std::mt19937_64 random(53);
  for (const uint32_t chunk : {1u, 2u, 4u, 8u})
    for (const auto& [dtype, trim, has_zeros] : invariant_stages) {
      const Model model = staged_invariant_model(invariant_model(1000, chunk, 3, random), dtype, trim, has_zeros);
      check_sample(RowModel(std::make_shared<Model>(model)).text(), model, staged_invariant_rows(model, 60, random),
                   random() % 2 == 0);
    }
}

TEST_CASE("large slices are read by the kernel and by the copy engine") {
  std::mt19937_64 random(47);
  // The copy engine moves 32 MiB or more, and 512 KiB of short rows.
  struct Slice {
    Model model;
    uint64_t rows;
  };
  std::vector<Slice> slices = {{window_model(NCAST_BFLOAT16, 64, {}, false), 8000}};
  if (!is_reduced()) {
    slices.push_back({window_model(NCAST_BFLOAT16, 256, {}, false), 110000});
    slices.push_back({window_model(NCAST_BFLOAT16, 1024, {}, false), 30000});
    slices.push_back({window_model(NCAST_BFLOAT16, 8192, {}, false), 3500});
    slices.push_back({raw_model(NCAST_BFLOAT16, 1024), 30000});
  }
  for (const auto& [model, rows] : slices)
    for (const bool is_packed : {false, true}) {
      if (is_packed && model.coder == Coder::RAW) continue;
      CAPTURE(model.shape.elems);
      CAPTURE(is_packed);
      Fixture table(model, rows_of(model.shape, 60, floats(NCAST_BFLOAT16, {}), random), rows, is_packed);
      table.check_fetch(0, table.rows(), 1);
      table.check_fetch(77, table.rows() - 100, 1);
      CHECK(table.calls_started() == 2);
      CHECK(table.calls_ended() == 2);
    }
}

TEST_CASE("captured gathers and fetches read the table again in every replay") {
  std::mt19937_64 random(41);
  const Model model = window_model(NCAST_BFLOAT16, 256, {}, false);
  Fixture table(model, rows_of(model.shape, 60, floats(NCAST_BFLOAT16, {}), random), is_reduced() ? 500 : 20000, false);
  std::vector<int64_t> indices;
  for (int i = 0; i < (is_reduced() ? 500 : 3000); ++i)
    indices.push_back(static_cast<int64_t>(random() % table.rows()));
  DeviceArray<int64_t> on_device(indices.size());
  CHECK_CUDA(cudaMemcpy(on_device.data(), indices.data(), indices.size() * 8, cudaMemcpyHostToDevice));
  DeviceArray<char> gathered(indices.size() * 512), fetched(table.rows() * 512);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(table.stream(), cudaStreamCaptureModeThreadLocal));
  CHECK_OK(table.reader().gather({on_device.data(), 8, indices.size(), false, false}, table.rows(),
                                 table.target(gathered.data(), 512)));
  CHECK_OK(table.reader().fetch(0, table.rows(), 1, table.rows(), table.target(fetched.data(), 512)));
  CHECK_CUDA(cudaStreamEndCapture(table.stream(), &graph));
  CHECK_CUDA(cudaGraphInstantiate(&executable, graph, 0));
  std::vector<int64_t> all;
  for (uint64_t i = 0; i < table.rows(); ++i) all.push_back(static_cast<int64_t>(i));
  for (uint64_t replay = 1; replay <= 3; ++replay) {
    CHECK_CUDA(cudaMemset(gathered.data(), 0, indices.size() * 512));
    CHECK_CUDA(cudaMemset(fetched.data(), 0, table.rows() * 512));
    CHECK_CUDA(cudaGraphLaunch(executable, table.stream()));
    table.check(gathered.data(), indices, 512);
    table.check(fetched.data(), all, 512);
    CHECK(table.calls_started() == 2 * replay);
    CHECK(table.calls_ended() == 2 * replay);
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// Kernels in a graph have at most `sms` CTAs, and memory is not set: that is a kernel of the driver.
void check_ctas(cudaGraph_t graph, uint32_t sms, size_t least_kernels) {
  size_t count = 0, kernels = 0;
  CHECK_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  CHECK_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    CHECK_CUDA(cudaGraphNodeGetType(node, &type));
    CHECK(type != cudaGraphNodeTypeMemset);
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams kernel = {};
    CHECK_CUDA(cudaGraphKernelNodeGetParams(node, &kernel));
    CHECK(kernel.gridDim.x * kernel.gridDim.y * kernel.gridDim.z <= sms);
    ++kernels;
  }
  CHECK(kernels >= least_kernels);
}

TEST_CASE("calls have no more CTAs than the SMs that they may use") {
  constexpr uint32_t sms = 2;
  constexpr size_t row_bytes = 512, count = 9000;  // indices: several tiles of those that order them
  std::mt19937_64 random(47);
  for (const bool is_coded : {false, true})
    for (const bool has_cache : {false, true}) {
      CAPTURE(is_coded);
      CAPTURE(has_cache);
      const Model model = is_coded ? window_model(NCAST_BFLOAT16, 256, {}, false) : raw_model(NCAST_BFLOAT16, 256);
      // So many rows are reserved that indices are ordered.
      Fixture table(model, rows_of(model.shape, 10, floats(NCAST_BFLOAT16, {}), random), 3000, false, 8 << 20);
      if (has_cache)
        CHECK_OK(table.reader().set_cache({CachePolicy::lru, 1 << 20, row_bytes}, {}, table.rows(), table.stream()));
      DeviceArray<int64_t> indices(count);
      DeviceArray<char> out(count * row_bytes);
      const RowTarget target = {out.data(), row_bytes, sms, table.stream()};
      cudaGraph_t gather = nullptr, fetch = nullptr;
      CHECK_CUDA(cudaStreamBeginCapture(table.stream(), cudaStreamCaptureModeThreadLocal));
      CHECK_OK(table.reader().gather({indices.data(), 8, count, false, false}, table.rows(), target));
      CHECK_CUDA(cudaStreamEndCapture(table.stream(), &gather));
      CHECK_CUDA(cudaStreamBeginCapture(table.stream(), cudaStreamCaptureModeThreadLocal));
      CHECK_OK(table.reader().fetch(0, table.rows(), 1, table.rows(), target));
      CHECK_CUDA(cudaStreamEndCapture(table.stream(), &fetch));
      check_ctas(gather, sms, has_cache ? 10 : 4);  // two order the indices, one starts the call
      check_ctas(fetch, sms, 2);
      cudaGraphDestroy(gather);
      cudaGraphDestroy(fetch);
    }
}

TEST_CASE("readers of more rows than a gather can have are rejected") {
  std::unique_ptr<Reader> reader;
  CHECK(Reader::create(ReaderTable{}, {uint64_t{1} << 32, 0}, &reader) == NCAST_INVALID_ARGUMENT);
  CHECK(reader == nullptr);
}

TEST_CASE("indices that are ordered by page are those that were given") {
  std::mt19937_64 random(43);
  GatherMachine machine = {};
  CHECK_CUDA(find_gather_machine(&machine));
  CHECK_CUDA(prepare_order(machine));
  // Few and many for a CTA.
  for (const uint64_t count : is_reduced() ? std::vector<uint64_t>{5000} : std::vector<uint64_t>{5000, 120000}) {
    CAPTURE(count);
    const uint64_t rows = 1 << 20;
    std::vector<int64_t> indices;
    for (uint64_t i = 0; i < count; ++i) indices.push_back(static_cast<int64_t>(random() % rows));
    indices[7] = -5;
    indices[9] = int64_t{1} << 40;
    const auto pages = pages_of(rows, 256);
    DeviceArray<int64_t> on_device(count);
    DeviceArray<char> workspace(order_workspace_bytes(count, pages));
    CHECK_CUDA(cudaMemcpy(on_device.data(), indices.data(), count * 8, cudaMemcpyHostToDevice));
    CHECK_CUDA(order_by_page(on_device.data(), 8, count, pages, workspace.data(), machine, 2, nullptr));
    std::vector<uint64_t> entries(count);
    CHECK_CUDA(cudaMemcpy(entries.data(), workspace.data(), count * sizeof entries[0], cudaMemcpyDeviceToHost));
    const auto page = [&](uint32_t position) {
      return std::min<uint64_t>(static_cast<uint64_t>(indices[position]) >> pages.shift, pages.count - 1);
    };
    std::vector<bool> seen(count);
    for (size_t i = 0; i < count; ++i) {
      const uint32_t position = entry_position(entries[i]);
      REQUIRE(position < count);
      CHECK_FALSE(seen[position]);
      seen[position] = true;
      if (i != 0) CHECK(page(entry_position(entries[i - 1])) <= page(position));
    }
  }
}

}  // namespace
}  // namespace narrowcast::store::cuda::test
