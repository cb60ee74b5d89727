#include "checkpoint/foreign_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "io/path_text.h"

namespace moeflux {
namespace {

using std::literals::operator""sv;

constexpr std::string_view kLfsBegin = "version https://git-lfs.github.com/spec/";
constexpr size_t kHeadBytes = 512;
constexpr size_t kTarMagicBegin = 257;

struct Kind {
  std::string_view begin;
  std::string_view text;
};

constexpr std::string_view kWebPage =
    "a web page that was saved in place of the file: look at the address, and whether the site "
    "wants a token, and download it again";
constexpr std::string_view kPyTorch =
    "a PyTorch checkpoint, which can run code when it is read: take the safetensors files of the "
    "model, or convert it to safetensors or GGUF";
constexpr std::string_view kArchive = "an archive: unpack it first";
constexpr std::string_view kOldGgml =
    "a file of GGML from before GGUF: convert the model's safetensors files to GGUF, or take a "
    "newer file";
constexpr std::string_view kProgram = "a program, not a model";

constexpr std::array<Kind, 24> kKinds = {{
    {kLfsBegin, kLfsPointerText},
    {"<!doctype html"sv, kWebPage},
    {"<html"sv, kWebPage},
    {"<?xml"sv, kWebPage},
    {"<error"sv, kWebPage},
    {"MZqFpD"sv, "a program with a GGUF file in it: unpack that with unzip"},
    {"PK\x03\x04"sv,
     "a ZIP archive, as PyTorch writes its .bin, .pt and .pth files: take the safetensors files of "
     "the model, or convert it to safetensors or GGUF"},
    {"\x80\x02"sv, kPyTorch},
    {"\x80\x04"sv, kPyTorch},
    {"\x1f\x8b"sv, kArchive},
    {"\x28\xb5\x2f\xfd"sv, kArchive},
    {"\xfd"
     "7zXZ\0"sv,
     kArchive},
    {"7z\xbc\xaf\x27\x1c"sv, kArchive},
    {"Rar!"sv, kArchive},
    {"BZh"sv, kArchive},
    {"lmgg"sv, kOldGgml},
    {"fmgg"sv, kOldGgml},
    {"tjgg"sv, kOldGgml},
    {"algg"sv,
     "an adapter of GGML from before GGUF; adapters are not read, merge it into its model"},
    {"\x89HDF"sv, "an HDF5 file, as Keras writes weights: convert the model to safetensors"},
    {"\x7f"
     "ELF"sv,
     kProgram},
    {"MZ"sv, kProgram},
    {"{\"error"sv, "an error message of a server that was saved in place of the file"},
    {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"sv,
     "zeros where the file begins: a download that has taken room and has not been written"},
}};

std::string lower(std::string_view text) {
  std::string all(text);
  std::transform(all.begin(), all.end(), all.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return all;
}

bool ends_as_unfinished(std::string_view name) {
  constexpr std::array<std::string_view, 9> kEnds = {".incomplete", ".part",     ".partial",
                                                     ".crdownload", ".download", ".aria2",
                                                     ".!qb",        ".tmp",      ".opdownload"};
  return std::any_of(kEnds.begin(), kEnds.end(),
                     [&](std::string_view end) { return name.ends_with(end); });
}

std::string_view kind_by_name(std::string_view name) {
  if (name.ends_with(".onnx"))
    return "an ONNX file: take the safetensors or GGUF files of the model";
  if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth") ||
      name.ends_with(".ckpt")) {
    return kPyTorch;
  }
  if (name.ends_with(".imatrix") || name.ends_with(".dat")) {
    return "an importance matrix or other data, not a model";
  }
  return {};
}

}  // namespace

bool is_lfs_pointer(std::string_view text) { return text.starts_with(kLfsBegin); }

std::string foreign_kind(const File& file) {
  const std::string name = lower(file_name_of(file.path()));
  if (file.size_bytes() == 0) return "empty: a download that has not begun, or has failed";
  if (ends_as_unfinished(name)) {
    return "a download that has not finished, as its name says: let it go on, or begin it again";
  }
  std::string head(std::min<uint64_t>(file.size_bytes(), kHeadBytes), '\0');
  if (!file.read_at(0, std::as_writable_bytes(std::span(head))).ok()) return {};
  const std::string small = lower(head);
  for (const Kind& kind : kKinds) {
    if (head.starts_with(kind.begin) || small.starts_with(kind.begin)) {
      return std::string(kind.text);
    }
  }
  if (head.size() > kTarMagicBegin + 5 && head.substr(kTarMagicBegin, 5) == "ustar") {
    return std::string(kArchive);
  }
  return std::string(kind_by_name(name));
}

bool is_projector(std::string_view name) { return lower(name).find("mmproj") != std::string::npos; }

bool is_beside_model(std::string_view name) {
  const std::string small = lower(name);
  return small.starts_with('.') || small.starts_with("adapter_model") || is_projector(name) ||
         small.find("imatrix") != std::string::npos || ends_as_unfinished(small);
}

}  // namespace moeflux
