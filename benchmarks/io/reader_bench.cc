// Random reads of equal blobs from one file, by mode, chunk size and depth: one line each.
//
//   reader_bench FILE [blob_bytes=1769472] [seconds=1] [modes=uring,direct,pread,mmap]
//                [chunks_kib=512] [depths=1,2,4,8,16,32] [seed=1]
//
// Each line is measured after as long a warm-up. A drive's speed may depend on what ran before: run
// single lines in random order when comparing. The page cache is not emptied here; pread leaves
// nothing in it, mmap does.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "io/drive_probe.h"
#include "io/reader_factory.h"

namespace moeflux {
namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Arguments {
  std::string path;
  uint64_t blob_bytes = 1769472;  // one 4-bit expert of 2048 x 512 with its scales
  double seconds = 1;
  std::vector<std::string> modes = {"uring", "direct", "pread", "mmap"};
  std::vector<std::string> chunks_kib = {"512"};
  std::vector<std::string> depths = {"1", "2", "4", "8", "16", "32"};
  uint64_t seed = 1;
};

Status measure(const Arguments& arguments, const File& file, const std::string& mode_name,
               const std::string& chunk_kib, const std::string& depth, uint64_t seed) {
  MF_ASSIGN_OR_RETURN(const IoMode mode, parse_io_mode(mode_name));
  const size_t chunk_bytes = std::strtoull(chunk_kib.c_str(), nullptr, 10) * kKiB;
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<AsyncReader> reader,
                      make_reader(mode, {.chunk_bytes = chunk_bytes}));
  const int depth_value = static_cast<int>(std::strtol(depth.c_str(), nullptr, 10));
  // The first half spends what credit a throttled drive saved while it was idle; the second counts.
  DriveProbeOptions options{.blob_bytes = arguments.blob_bytes,
                            .depths = {depth_value, depth_value},
                            .seconds = 2 * arguments.seconds,
                            .bytes_max = uint64_t{64} << 30,
                            .seed = seed};
  const double cpu_begin = cpu_seconds();
  MF_ASSIGN_OR_RETURN(const DriveProbe probe, probe_drive(*reader, file, options));
  const double cpu = cpu_seconds() - cpu_begin;
  const DriveProbePoint& point = probe.points[1];
  const double gigabytes =
      static_cast<double>((probe.points[0].blobs + point.blobs) * arguments.blob_bytes) * 1e-9;
  std::printf("%-7s chunk %5s KiB  depth %3s  %7.1f MB/s  %7.3f ms/blob  %6.3f CPU s/GB\n",
              mode_name.c_str(), chunk_kib.c_str(), depth.c_str(), point.bytes_per_second * 1e-6,
              point.blob_seconds_mean * 1e3, cpu / gigabytes);
  std::fflush(stdout);
  return {};
}

Status run(const Arguments& arguments) {
  MF_ASSIGN_OR_RETURN(const std::unique_ptr<File> file, open_file(arguments.path));
  uint64_t seed = arguments.seed;  // another for each line: nothing is read twice
  for (const std::string& chunk : arguments.chunks_kib) {
    for (const std::string& depth : arguments.depths) {
      for (const std::string& mode : arguments.modes) {
        MF_RETURN_IF_ERROR(measure(arguments, *file, mode, chunk, depth, seed++));
      }
    }
  }
  return {};
}

}  // namespace
}  // namespace moeflux

int main(int argc, char** argv) {
  moeflux::Arguments arguments;
  if (argc < 2) {
    std::puts("reader_bench FILE [blob_bytes] [seconds] [modes] [chunks_kib] [depths] [seed]");
    return 0;
  }
  arguments.path = argv[1];
  if (argc > 2) arguments.blob_bytes = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) arguments.seconds = std::strtod(argv[3], nullptr);
  if (argc > 4) arguments.modes = moeflux::split(argv[4]);
  if (argc > 5) arguments.chunks_kib = moeflux::split(argv[5]);
  if (argc > 6) arguments.depths = moeflux::split(argv[6]);
  if (argc > 7) arguments.seed = std::strtoull(argv[7], nullptr, 10);
  const moeflux::Status status = moeflux::run(arguments);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().to_string().c_str());
  return 1;
}
