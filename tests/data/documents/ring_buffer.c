/* ring_buffer.c: bytes from the serial port of the weather mast to the logger.
 *
 * One producer (the interrupt handler) and one consumer (the main loop), no lock.
 * The size is a power of two so that an index is reduced with a mask instead of a
 * division, which costs 40 cycles on this chip. One slot stays empty: full and empty
 * could not be told apart otherwise.
 *
 * Author: Isidro Falk, for the sailing school's mast on the mole. */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RB_SIZE 256u
#define RB_MASK (RB_SIZE - 1u)

struct ring {
    uint8_t data[RB_SIZE];
    _Atomic uint32_t head; /* written by the producer only */
    _Atomic uint32_t tail; /* written by the consumer only */
    uint32_t lost;         /* bytes dropped since power-on, shown on the service page */
};

/* Put one byte. If there is no space the new byte is dropped, not the oldest: half a
 * sentence at the end is found by its checksum, a hole in the middle was not always. */
int rb_put(struct ring *r, uint8_t byte)
{
    uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    uint32_t next = (head + 1u) & RB_MASK;

    if (next == atomic_load_explicit(&r->tail, memory_order_acquire)) {
        r->lost++;
        return 0;
    }
    r->data[head] = byte;
    /* Release: the byte must be visible before the index that announces it. Without this
     * the logger read old gusts on the two-core board, about once a day. */
    atomic_store_explicit(&r->head, next, memory_order_release);
    return 1;
}

/* Take up to n bytes, return how many were there. Never waits. */
size_t rb_take(struct ring *r, uint8_t *out, size_t n)
{
    uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    uint32_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    size_t got = 0;

    while (got < n && tail != head) {
        out[got++] = r->data[tail];
        tail = (tail + 1u) & RB_MASK;
    }
    atomic_store_explicit(&r->tail, tail, memory_order_release);
    return got;
}

/* At 4800 baud, 256 bytes last 530 ms. The SD card pauses for up to 400 ms when it
 * tidies up, so do not make the buffer smaller. */
