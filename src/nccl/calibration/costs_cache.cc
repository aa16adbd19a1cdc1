#include "nccl/calibration/costs_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <map>
#include <mutex>

#include "files/cache_folder.h"
#include "files/owned_file.h"

namespace narrowcast::nccl {
namespace {

constexpr off_t most_bytes = 1 << 20;

class Folder {
 public:
  explicit Folder(const std::string& path) : folder_(files::open_cache_folder(path, &why_)) {}
  ~Folder() {
    if (folder_ >= 0) close(folder_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  int get() const { return folder_; }

 private:
  std::string why_;
  int folder_;
};

std::string read_all(int folder, const std::string& name) {
  std::string ignored, content;
  const int file = files::open_owned(folder, name, O_RDONLY, files::Trust::readable, &ignored);
  if (file < 0) return content;
  struct stat about;
  if (fstat(file, &about) == 0 && about.st_size <= most_bytes) content.resize(static_cast<size_t>(about.st_size));
  const ssize_t bytes = read(file, content.data(), content.size());
  if (bytes != static_cast<ssize_t>(content.size())) content.clear();
  close(file);
  return content;
}

// The name of the file of a key.
std::string file_name_of(const CostsKey& key) {
  std::string name = key.line();
  for (char& letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0 && letter != '.') letter = '_';
  return name.substr(0, 200) + ".costs";  // a name has at most 255 characters
}

struct InProcess {
  std::mutex mutex;
  std::map<std::string, std::string> texts;  // by the line of the key
};

InProcess& in_process() {
  static InProcess& the = *new InProcess;  // never freed: calls may come until the process ends
  return the;
}

}  // namespace

std::string CostsCache::default_folder() { return files::cache_folder("costs"); }

std::string CostsCache::place_of(const CostsKey& key) const {
  return folder_.empty() ? "this process" : folder_ + "/" + file_name_of(key);
}

std::string CostsCache::find(const CostsKey& key) const {
  if (folder_.empty()) {
    InProcess& kept = in_process();
    const std::lock_guard lock(kept.mutex);
    const auto found = kept.texts.find(key.line());
    return found == kept.texts.end() ? "" : found->second;
  }
  const Folder folder(folder_);
  if (folder.get() < 0) return "";
  std::string text = read_all(folder.get(), file_name_of(key));
  // Names are shortened, and a file may have been copied.
  return text.find("\n# " + key.line() + "\n") != text.npos ? text : "";
}

CostsCache::Lock::Lock(const CostsCache& cache, const CostsKey& key) {
  // Without a folder nobody can be excluded.
  is_held_ = true;
  if (cache.folder_.empty()) return;
  files::make_folder(cache.folder_);
  const Folder folder(cache.folder_);
  if (folder.get() < 0) return;
  std::string ignored;
  file_ =
      files::open_owned(folder.get(), file_name_of(key) + ".lock", O_RDWR | O_CREAT, files::Trust::readable, &ignored);
  if (file_ >= 0) is_held_ = flock(file_, LOCK_EX | LOCK_NB) == 0;
}

CostsCache::Lock::~Lock() {
  if (file_ >= 0) close(file_);
}

bool CostsCache::store(const CostsKey& key, const std::string& text) const {
  if (folder_.empty()) {
    InProcess& kept = in_process();
    const std::lock_guard lock(kept.mutex);
    kept.texts[key.line()] = text;
    return true;
  }
  const Folder folder(folder_);
  const iovec content[] = {{const_cast<char*>(text.data()), text.size()}};
  return folder.get() >= 0 && files::replace_file(folder.get(), file_name_of(key), content);
}

}  // namespace narrowcast::nccl
