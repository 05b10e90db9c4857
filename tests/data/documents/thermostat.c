/* Thermostat for the greenhouse on plot 17: keeps frost off the lemon trees.
 *
 * Board: small 8-bit controller, 2 KB of RAM, powered by a 12 V car battery.
 * Sensor: 10 k thermistor on channel 2. Relay: pin 5, switches the paraffin heater's fan.
 * Written by Rufus Gadd for his grandfather. */

#include <stdbool.h>
#include <stdint.h>

#define ON_BELOW_C10   30  /* tenths of a degree: heat below 3.0 C */
#define OFF_ABOVE_C10  55  /* and up to 5.5 C, so that the relay does not chatter */
#define MIN_OFF_S     240  /* the heater must cool for four minutes before it starts again */
#define LOW_MV      11600  /* below 11.6 V the battery would be damaged: never heat */
#define WATCHDOG_S      8

struct state {
    bool heating;
    uint16_t since_off_s;
    uint8_t bad_reads;
};

/* Table of the thermistor, ADC value at -10, 0, 10, 20, 30 degrees. Measured in
 * Grandfather's kitchen with ice water and the jam thermometer; the maker's table was 2 off. */
static const uint16_t table[5] = {862, 780, 682, 576, 470};

/* Returns tenths of a degree, or INT16_MIN if the wire is broken or shorted. */
static int16_t to_c10(uint16_t adc)
{
    if (adc > 1000 || adc < 30)
        return INT16_MIN;
    for (int i = 0; i < 4; i++) {
        if (adc <= table[i] && adc >= table[i + 1])
            return (int16_t)(-100 + 100 * i + 100 * (table[i] - adc) / (table[i] - table[i + 1]));
    }
    return adc > table[0] ? -100 : 300;
}

/* Called once per second by the timer. Returns whether the relay is to be closed. */
bool step(struct state *s, uint16_t adc, uint16_t battery_mv)
{
    int16_t t = to_c10(adc);

    if (!s->heating && s->since_off_s < UINT16_MAX)
        s->since_off_s++;

    if (t == INT16_MIN) {
        /* A mouse ate the cable in January. After a minute without a reading we heat
         * rather than freeze: paraffin is cheaper than trees. */
        if (s->bad_reads < 60)
            s->bad_reads++;
        t = s->bad_reads >= 60 ? ON_BELOW_C10 - 1 : OFF_ABOVE_C10 - 1;
    } else {
        s->bad_reads = 0;
    }

    if (battery_mv < LOW_MV || t > OFF_ABOVE_C10) {
        if (s->heating)
            s->since_off_s = 0;
        s->heating = false;
    } else if (t < ON_BELOW_C10 && s->since_off_s >= MIN_OFF_S) {
        s->heating = true;
    }
    return s->heating;
}
