#include "evenkeel/io/internal/torch_file.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "evenkeel/io/internal/parse_error.h"
#include "evenkeel/io/internal/shape.h"

namespace evenkeel::internal {

namespace {

constexpr int max_torch_members = 1 << 20;
constexpr std::int64_t max_pickle_bytes = std::int64_t{256} << 20;
constexpr int last_version = 10;  // the last that torch 2.13 reads
constexpr std::string_view rebuild_tensor = "torch._utils _rebuild_tensor_v2";
constexpr std::string_view rebuild_parameter = "torch._utils _rebuild_parameter";

std::vector<std::string_view> allowed_names() {
  std::vector<std::string_view> names = {rebuild_tensor, rebuild_parameter, "collections OrderedDict"};
  for (const DtypeNames& type : dtypes())
    if (!type.torch.empty()) names.push_back(type.torch);
  return names;
}

// The member that holds the pickle; nullptr if there is none.
const ZipArchive::Member* pickle_in(const ZipArchive& archive) {
  const auto found = std::ranges::find_if(archive.members(), [](const ZipArchive::Member& member) {
    return member.name == "data.pkl" || member.name.ends_with("/data.pkl");
  });
  return found == archive.members().end() ? nullptr : &*found;
}

}  // namespace

struct TorchFile::Tensor {
  // The tensor's storage, from the tuple ("storage", type, name, device, elements).
  Dtype dtype = Dtype::i64;
  std::string member;     // its name
  std::int64_t size = 0;  // elements
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape = {};
  std::vector<std::int64_t> strides = {};
};

bool is_torch_file(const ByteSource& source) {
  return pickle_in(ZipArchive(source, max_torch_members)) != nullptr;
}

TorchFile::TorchFile(const ByteSource& source)
    : archive_(std::make_shared<const ZipArchive>(source, max_torch_members)),
      budget_((std::int64_t{1} << 20) + 4 * std::min(archive_->file_size(), std::int64_t{1} << 50)) {
  const ZipArchive::Member* const found = pickle_in(*archive_);
  if (found == nullptr) throw ParseError(name(), "", "is not a file of torch.save: it has no data.pkl");
  prefix_ = found->name.substr(0, found->name.rfind("data.pkl"));
  if (const std::string order = prefix_ + "byteorder";
      archive_->find(order) != nullptr && text_of(order) != "little")
    throw ParseError(name(), order, "is not little-endian; save the file again on a little-endian machine");
  require_version();
  if (found->size > max_pickle_bytes)
    throw parse_error(name(), found->name, "has {} bytes; at most {} are read", found->size,
                      max_pickle_bytes);
  const std::vector<std::string_view> allowed = allowed_names();
  const std::string program = text_of(found->name);
  pickle_ = std::make_unique<Pickle>(std::as_bytes(std::span(program)), allowed, name(), found->name);
  // All storages are checked, since torch.load() loads all of them.
  for (Id storage : pickle_->all_of(Pickle::Kind::persistent)) storage_of(storage, found->name);
}

void TorchFile::require_version() const {
  const std::string version_member = prefix_ + "version";
  const std::string text = text_of(version_member);
  int version = 0;
  std::from_chars(text.data(), text.data() + text.size(), version);
  if (version < 1 || version > last_version)
    throw parse_error(name(), version_member, "is not a number in 1..{}, the versions of torch.save",
                      last_version);
}

const ZipArchive::Member& TorchFile::member(const std::string& member_name) const {
  const ZipArchive::Member* const found = archive_->find(member_name);
  if (found == nullptr) throw ParseError(name(), member_name, "is not in the archive");
  // torch.save never compresses, so no member may ask for more memory than the file has bytes.
  if (!found->stored() || found->encrypted || found->size > archive_->file_size())
    throw ParseError(name(), member_name,
                     "is compressed, encrypted or larger than the file, which torch.save never writes");
  return *found;
}

std::string TorchFile::text_of(const std::string& member_name) const {
  const ZipArchive::Member& found = member(member_name);
  std::string text(static_cast<std::size_t>(found.size), '\0');
  ZipMemberReader(archive_, found, member_name).read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

void TorchFile::charge(std::int64_t elements, const std::string& key) {
  if (elements > budget_)
    throw ParseError(name(), key,
                     "needs far more memory than the size of the file allows; is the file damaged?");
  budget_ -= elements;
}

std::vector<std::int64_t> TorchFile::sizes(Id tuple, const std::string& key) const {
  std::vector<std::int64_t> numbers;
  if (pickle_->kind(tuple) != Pickle::Kind::tuple || pickle_->items(tuple).size() > 8)
    throw ParseError(name(), key, "has a shape or strides other than a tuple of at most 8 numbers");
  for (Id item : pickle_->items(tuple)) {
    if (pickle_->kind(item) != Pickle::Kind::integer || pickle_->integer(item) < 0)
      throw ParseError(name(), key,
                       "has a shape or strides with something other than whole numbers of at least 0");
    numbers.push_back(pickle_->integer(item));
  }
  return numbers;
}

TorchFile::Tensor TorchFile::storage_of(Id persistent, const std::string& key) const {
  using Kind = Pickle::Kind;
  const Id place = pickle_->items(persistent)[0];
  const bool is_tuple = pickle_->kind(place) == Kind::tuple && pickle_->items(place).size() == 5;
  const auto parts = is_tuple ? pickle_->items(place) : std::span<const Id>();
  if (!is_tuple || pickle_->kind(parts[0]) != Kind::text || pickle_->text(parts[0]) != "storage" ||
      pickle_->kind(parts[1]) != Kind::name || pickle_->kind(parts[2]) != Kind::text ||
      pickle_->kind(parts[4]) != Kind::integer)
    throw ParseError(name(), key, "has a storage that torch.save did not write");
  const DtypeNames* const type = find_dtype(&DtypeNames::torch, pickle_->text(parts[1]));
  if (type == nullptr)
    throw parse_error(name(), key, "has a storage of unknown type '{}'", pickle_->text(parts[1]));
  Tensor storage{.dtype = type->type,
                 .member = prefix_ + "data/" + pickle_->text(parts[2]),
                 .size = pickle_->integer(parts[4])};
  if (const std::int64_t bytes = member(storage.member).size;
      bytes % type->item_size != 0 || bytes / type->item_size != storage.size)
    throw parse_error(name(), storage.member, "has {} bytes, but should have {} elements of {}", bytes,
                      storage.size, type->name);
  return storage;
}

// Reads a call of rebuild_tensor: (storage, offset, shape, strides, requires_grad, hooks[, metadata]).
TorchFile::Tensor TorchFile::describe(Id id, const std::string& key) const {
  const auto refuse = [&](const char* why) -> void { throw ParseError(name(), key, why); };
  if (!is_tensor(id)) throw parse_error(name(), key, "is {}, not a tensor", pickle_->kind_name(id));
  auto call = pickle_->items(id);
  if (const auto of = pickle_->items(call[1]); pickle_->text(call[0]) == rebuild_parameter) {
    if (of.size() != 3 || !is_tensor(of[0])) refuse("is a parameter without a tensor");
    call = pickle_->items(of[0]);
  }
  if (pickle_->text(call[0]) != rebuild_tensor) refuse("calls a function that makes no tensor");
  const auto arguments = pickle_->items(call[1]);
  using Kind = Pickle::Kind;
  if (arguments.size() < 6 || arguments.size() > 7 || pickle_->kind(arguments[0]) != Kind::persistent ||
      pickle_->kind(arguments[1]) != Kind::integer)
    refuse("is a tensor without storage and offset");
  Tensor tensor = storage_of(arguments[0], key);
  tensor.offset = pickle_->integer(arguments[1]);
  tensor.shape = sizes(arguments[2], key);
  tensor.strides = sizes(arguments[3], key);
  return tensor;
}

bool TorchFile::is_floating(Id id) const {
  return evenkeel::is_floating(describe(id, "tensor").dtype);
}

// The bytes from the tensor's first element to its last. Throws ParseError if it reaches beyond its storage.
std::vector<std::byte> TorchFile::stored_bytes(Tensor& tensor, const std::string& key) {
  // The stride of a dimension of length 1 has no effect, so it is not checked.
  for (std::size_t i = 0; i < tensor.shape.size(); ++i)
    if (tensor.shape[i] == 1) tensor.strides[i] = 0;
  // The index of the last element in the storage.
  std::int64_t last = tensor.offset;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    std::int64_t step = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &step) ||
        __builtin_add_overflow(last, step, &last))
      throw ParseError(name(), key, "has strides that lead beyond its storage");
  }
  const std::int64_t width = item_size(tensor.dtype);
  if (tensor.offset < 0 || last >= tensor.size)
    throw parse_error(name(), key, "reaches element {} of {}, which has {} elements", last, tensor.member,
                      tensor.size);
  const std::int64_t span = last - tensor.offset + 1;
  charge(span, key);
  std::vector<std::byte> bytes(static_cast<std::size_t>(span * width));
  ZipMemberReader reader(archive_, member(tensor.member), tensor.member);
  reader.read(tensor.offset * width, bytes);
  reader.require_intact();
  return bytes;
}

// Reads the tensor and puts its elements, which may have any strides, in row-major order.
template <class Number>
WholeArray<Number> TorchFile::read(Id id, const std::string& key) {
  Tensor tensor = describe(id, key);
  const auto elements = count_elements(tensor.shape, 8);
  if (!elements || tensor.strides.size() != tensor.shape.size())
    throw parse_error(name(), key, "shape {} is too large, or does not have as many dimensions as strides",
                      to_text(tensor.shape));
  charge(*elements, key);
  WholeArray<Number> array{.shape = tensor.shape, .values = {}};
  if (*elements == 0) return array;
  const std::vector<std::byte> bytes = stored_bytes(tensor, key);
  std::vector<Number> numbers(bytes.size() / static_cast<std::size_t>(item_size(tensor.dtype)));
  if constexpr (std::is_same_v<Number, double>)
    to_double(tensor.dtype, bytes, numbers);
  else if (const auto broken = to_whole(tensor.dtype, bytes, numbers))
    throw parse_error(name(), key, "element {} is not an exact whole number", *broken);
  array.values.reserve(static_cast<std::size_t>(*elements));
  std::vector<std::int64_t> at(tensor.shape.size(), 0);
  for (std::int64_t from = 0; std::ssize(array.values) < *elements;) {
    array.values.push_back(numbers[static_cast<std::size_t>(from)]);
    for (std::size_t i = at.size(); i-- > 0;) {
      from += tensor.strides[i];
      if (++at[i] < tensor.shape[i]) break;
      from -= tensor.strides[i] * tensor.shape[i];
      at[i] = 0;
    }
  }
  return array;
}

IntArray TorchFile::integers(Id id, const std::string& key) {
  return read<std::int64_t>(id, key);
}

DoubleArray TorchFile::doubles(Id id, const std::string& key) {
  return read<double>(id, key);
}

}  // namespace evenkeel::internal
