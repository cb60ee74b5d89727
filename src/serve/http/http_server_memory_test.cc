// A server that has answered thousands of requests holds what it held after a few. The test
// program's own operator new counts the blocks that are in use.
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "serve/http/http_server_test_util.h"

namespace {

std::atomic<int64_t> blocks_in_use{0};

// Not inlined: next to a `new` that is not, g++ takes a bare free() for a mismatch.
[[gnu::noinline]] void give_back(void* memory) {
  if (memory == nullptr) return;
  blocks_in_use.fetch_sub(1, std::memory_order_relaxed);
  free(memory);
}

void* counted(void* memory) {
  if (memory == nullptr) abort();
  blocks_in_use.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* aligned(size_t bytes, std::align_val_t alignment) {
  void* memory = nullptr;
  const auto boundary = std::max(static_cast<size_t>(alignment), sizeof(void*));
  return posix_memalign(&memory, boundary, bytes) == 0 ? memory : nullptr;
}

}  // namespace

void* operator new(size_t bytes) { return counted(malloc(bytes == 0 ? 1 : bytes)); }
void* operator new[](size_t bytes) { return counted(malloc(bytes == 0 ? 1 : bytes)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted(aligned(bytes, alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return counted(aligned(bytes, alignment));
}
// Under a sanitizer the library's own would not call the ones above.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return counted(malloc(bytes == 0 ? 1 : bytes));
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return counted(malloc(bytes == 0 ? 1 : bytes));
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { give_back(memory); }

namespace moeflux::serve {
namespace {

/// One of each fate that a request may have.
void ask_in_all_ways(ServerInTest& server) {
  RawClient kept = server.client();
  EXPECT_EQ(kept.ask(get("/echo")).status, 200);
  EXPECT_EQ(kept.ask(post("/echo", "{}")).status, 200);
  kept.send(get("/stream"));
  {
    const auto asked = server.next();
    asked.response->when_closed([response = asked.response] {});
    asked.response->begin(200, {});
    asked.response->write("a");
    asked.response->end();
  }
  EXPECT_EQ(kept.answer().body, "a");
  EXPECT_EQ(kept.ask("nonsense\r\n\r\n").status, 400);
  RawClient goes = server.client();
  goes.send(get("/stream"));
  {
    const auto asked = server.next();
    asked.response->when_closed([response = asked.response] {});
    asked.response->when_drained(0, [response = asked.response] {});
    asked.response->begin(200, {});
    asked.response->write("a");
    goes.receive_until("1\r\na\r\n");
  }
  goes.reset();
  RawClient half = server.client();
  half.send("POST /echo HTTP/1.1\r\nHost: loc");
}

int64_t blocks_after(ServerInTest& server, int rounds) {
  for (int i = 0; i < rounds; ++i) ask_in_all_ways(server);
  EXPECT_TRUE(server.soon([](const auto& s) { return s.connections == 0; }));
  return blocks_in_use;
}

TEST(HttpServerMemory, StaysWhereItIs) {
  ServerInTest server;
  const int64_t before = blocks_after(server, 20);
  const int64_t after = blocks_after(server, 500);
  // 1,500 connections and 2,500 requests: what each of them left behind would show.
  EXPECT_LT(after - before, 100) << before << " blocks, then " << after;
}

}  // namespace
}  // namespace moeflux::serve
