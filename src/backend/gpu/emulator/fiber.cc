#include "backend/gpu/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

#if defined(MF_ADDRESS_SANITIZER)
// Functions of the sanitizers' runtime, declared here because only builds with them have the
// headers.
extern "C" {
void __sanitizer_start_switch_fiber(void** fake_stack, const void* bottom, size_t bytes);
void __sanitizer_finish_switch_fiber(void* fake_stack, const void** bottom, size_t* bytes);
}
#endif
#if defined(MF_THREAD_SANITIZER)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#endif

#if !defined(MF_OWN_SWITCH)
#include <ucontext.h>
#endif

namespace moeflux::gpu::emulator {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;
// Tops of stacks are at other lines of a page each: at the same one, a cache has room for few.
constexpr size_t kStackShift = 256;
constexpr size_t kStackShifts = 16;
constexpr size_t kGuardBytes = size_t{16} << 10;  // at least a page everywhere

}  // namespace

#if defined(MF_OWN_SWITCH)

extern "C" void moeflux_fiber_begin();

asm(R"(
.text
.globl moeflux_fiber_switch
.type moeflux_fiber_switch, @function
moeflux_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size moeflux_fiber_switch, .-moeflux_fiber_switch
.globl moeflux_fiber_begin
.type moeflux_fiber_begin, @function
moeflux_fiber_begin:
  movq %r12, %rdi
  jmp *%r13
.size moeflux_fiber_begin, .-moeflux_fiber_begin
)");

Fiber::~Fiber() { munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes); }

void Fiber::start(void (*entry)(void*), void* argument) {
  auto* top = reinterpret_cast<void**>(stack_ + top_);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(&moeflux_fiber_begin);  // then the stack is as after a call
  *--top = nullptr;                                        // rbp
  *--top = nullptr;                                        // rbx
  *--top = argument;                                       // r12
  *--top = reinterpret_cast<void*>(entry);                 // r13
  *--top = nullptr;                                        // r14
  *--top = nullptr;                                        // r15
  stack_pointer_ = top;
}

void Fiber::finish() {
  pause();
  MF_CHECK(false && "a finished fiber was resumed");
  __builtin_unreachable();
}

void Fiber::finish(Fiber& next) {
  hand_over(next);
  MF_CHECK(false && "a finished fiber was resumed");
  __builtin_unreachable();
}

#else

struct Fiber::Context {
  std::byte* stack = nullptr;
  size_t stack_bytes = 0;
  ucontext_t inside = {};
  ucontext_t outside = {};
  void (*entry)(void*) = nullptr;
  void* argument = nullptr;
#if defined(MF_ADDRESS_SANITIZER)
  void* fake_inside = nullptr;
  void* fake_outside = nullptr;
  const void* outside_stack = nullptr;
  size_t outside_bytes = 0;
#endif
#if defined(MF_THREAD_SANITIZER)
  void* tsan_inside = nullptr;
  void* tsan_outside = nullptr;
  ~Context() {
    if (tsan_inside != nullptr) __tsan_destroy_fiber(tsan_inside);
  }
#endif

  // makecontext passes ints: a pointer travels in two halves.
  static void begin(unsigned high, unsigned low) {
    auto* self = reinterpret_cast<Context*>((static_cast<uintptr_t>(high) << 32) | low);
    self->arrived_inside();
    self->entry(self->argument);
  }
  void start(void (*run)(void*), void* with) {
    entry = run;
    argument = with;
    MF_CHECK(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = stack_bytes;
    inside.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&inside, reinterpret_cast<void (*)()>(&begin), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
#if defined(MF_ADDRESS_SANITIZER)
    fake_inside = nullptr;
#endif
#if defined(MF_THREAD_SANITIZER)
    if (tsan_inside == nullptr) tsan_inside = __tsan_create_fiber(0);
#endif
  }
  void arrived_inside() {
#if defined(MF_ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(fake_inside, &outside_stack, &outside_bytes);
#endif
  }
  void enter() {
#if defined(MF_ADDRESS_SANITIZER)
    __sanitizer_start_switch_fiber(&fake_outside, stack, stack_bytes);
#endif
#if defined(MF_THREAD_SANITIZER)
    tsan_outside = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_inside, 0);
#endif
    swapcontext(&outside, &inside);
#if defined(MF_ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(fake_outside, nullptr, nullptr);
#endif
  }
  void leave([[maybe_unused]] bool for_good) {
#if defined(MF_ADDRESS_SANITIZER)
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fake_inside, outside_stack, outside_bytes);
#endif
#if defined(MF_THREAD_SANITIZER)
    __tsan_switch_to_fiber(tsan_outside, 0);
#endif
    swapcontext(&inside, &outside);
    arrived_inside();
  }
};

Fiber::~Fiber() {
  munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes);
  if (stack_pointer_ != nullptr) delete &context();
}

void Fiber::start(void (*entry)(void*), void* argument) {
  if (stack_pointer_ == nullptr) stack_pointer_ = new Context();
  context().stack = stack_;
  context().stack_bytes = top_;
  context().start(entry, argument);
}

void Fiber::resume() { context().enter(); }

void Fiber::pause() { context().leave(/*for_good=*/false); }

void Fiber::finish() {
  context().leave(/*for_good=*/true);
  MF_CHECK(false && "a finished fiber was resumed");
  __builtin_unreachable();
}

void Fiber::finish(Fiber&) { finish(); }

#endif

Fiber::Fiber(Outside& outside) : outside_(outside) {
  // The guard below the stack turns an overflow into a fault at its place.
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  MF_CHECK(memory != MAP_FAILED);
  MF_CHECK(mprotect(memory, kGuardBytes, PROT_NONE) == 0);
  stack_ = static_cast<std::byte*>(memory) + kGuardBytes;
  top_ = kStackBytes - outside_.fibers++ % kStackShifts * kStackShift;
}

}  // namespace moeflux::gpu::emulator
