"""Entities as Temporal workflows: one generic workflow runs any chart, an event is an Update, an effect an activity.

What the step means, what it writes and how a result is delivered is the code of `kernel`, `runtime` and `effects`; this
package only carries values to and from it. It refuses what Temporal cannot do, and names the alternative.
"""
