// usage: node inspector.mjs PLAYWRIGHT CHROMIUM URL NAME
//
// Connects the web page of the Inspector at URL to its only server, logs in with a name at the
// provider, consents, calls the tool box__echo, and prints the text of the last page.
import { pathToFileURL } from 'node:url'

const [library, executablePath, url, name] = process.argv.slice(2)
const { chromium } = (await import(pathToFileURL(library))).default

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] })
const page = await browser.newPage()
page.setDefaultTimeout(120_000)
const text = () => page.locator('body').innerText()
try {
  await page.goto(url)
  await page.getByRole('switch', { name: /Connect or disconnect/ }).click({ force: true })
  await page.locator('input[name=login]').fill(name)
  await page.locator('input[name=password]').fill('x')
  await page.locator('button[type=submit]').click()
  await page.locator('input[value=consent]').waitFor({ state: 'attached' })
  await page.locator('button[type=submit]').click()
  await page.getByText('Authentication succeeded').waitFor()
  await page.getByText('Tools', { exact: true }).first().click()
  await page.getByText('box__echo').first().click()
  await page.getByRole('button', { name: 'Execute Tool' }).click()
  await page.getByText('Structured Output').waitFor()
  console.log(await text())
} catch (err) {
  console.log(await text())
  throw err
} finally {
  await browser.close()
}
